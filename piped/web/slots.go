package web

import (
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/c785c783/piped/piped/ratelimit"
)

// slots limit how many deliveries are read concurrently, in total and per address, so that
// one sender cannot block the others.
type slots struct {
	most, perAddress int

	mu    sync.Mutex
	taken map[string]int // by address
	all   int
}

// take takes a slot for an address; ok is false if none is free.
func (s *slots) take(address string) (ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all >= s.most || s.taken[address] >= s.perAddress {
		return false
	}
	if s.taken == nil {
		s.taken = map[string]int{}
	}
	s.all, s.taken[address] = s.all+1, s.taken[address]+1
	return true
}

func (s *slots) release(address string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all--
	if s.taken[address]--; s.taken[address] == 0 {
		delete(s.taken, address)
	}
}

// addressOf returns the key by which the deliveries of a remote address are counted.
func addressOf(remote string) string {
	host, _, err := net.SplitHostPort(remote)
	if err != nil {
		return remote
	}
	return ratelimit.Network(host)
}

var errBusy = errors.New("too many deliveries are being read")

// delivery is the body of a request. It takes a slot at the first read, hence after the
// header was verified, and must then arrive at the minimal rate.
type delivery struct {
	io.ReadCloser
	slots   *slots
	address string
	control *http.ResponseController
	limits  limits
	until   time.Time // deadline of the whole body

	began time.Time // zero until the first read
	n     int64
}

func (h *hooks) newDelivery(w http.ResponseWriter, r *http.Request) *delivery {
	return &delivery{
		ReadCloser: r.Body, slots: &h.slots, address: addressOf(r.RemoteAddr), control: http.NewResponseController(w),
		limits: h.limits, until: time.Now().Add(h.limits.read),
	}
}

// Read implements io.Reader. It returns errBusy if no slot is free.
func (d *delivery) Read(p []byte) (int, error) {
	if d.began.IsZero() {
		if !d.slots.take(d.address) {
			return 0, errBusy
		}
		d.began = time.Now()
	}
	deadline := d.began.Add(d.limits.slack + time.Duration(d.n)*time.Second/time.Duration(d.limits.rate))
	if deadline.After(d.until) {
		deadline = d.until
	}
	if err := d.control.SetReadDeadline(deadline); err != nil {
		return 0, err
	}
	n, err := d.ReadCloser.Read(p)
	d.n += int64(n)
	return n, err
}

// end releases the slot. After a complete read it resets the read deadline to that of the
// request, for the time that handling takes.
func (d *delivery) end(read bool) {
	if d.began.IsZero() {
		return
	}
	d.slots.release(d.address)
	if read {
		_ = d.control.SetReadDeadline(d.until) // fails only for a closed connection
	}
}
