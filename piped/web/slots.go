package web

import (
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"
)

// slots bound how many deliveries are read at once, in all and of one address, so that
// one sender cannot keep the others out.
type slots struct {
	most, perAddress int

	mu    sync.Mutex
	taken map[string]int // by address
	all   int
}

// take takes a slot for an address; ok is false when there is none.
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

// addressOf returns what counts as one address: of IPv6 the network of 64 bits, of which
// one sender has all.
func addressOf(remote string) string {
	host, _, err := net.SplitHostPort(remote)
	if err != nil {
		return remote
	}
	ip, err := netip.ParseAddr(host)
	if err != nil {
		return host
	}
	if ip = ip.Unmap().WithZone(""); ip.Is6() {
		if network, err := ip.Prefix(64); err == nil {
			return network.String()
		}
	}
	return ip.String()
}

var errBusy = errors.New("too many deliveries are being read")

// delivery is the body of a request. It takes a slot when it is read for the first time,
// which is after the header was found good, and must then arrive at a rate.
type delivery struct {
	io.ReadCloser
	slots   *slots
	address string
	control *http.ResponseController
	limits  limits
	until   time.Time // when all of it must be here

	began time.Time // zero until the first read
	n     int64
}

func (h *hooks) newDelivery(w http.ResponseWriter, r *http.Request) *delivery {
	return &delivery{
		ReadCloser: r.Body, slots: &h.slots, address: addressOf(r.RemoteAddr), control: http.NewResponseController(w),
		limits: h.limits, until: time.Now().Add(h.limits.read),
	}
}

// Read implements io.Reader. It fails with errBusy when there is no slot.
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

// end gives the slot back. What is done with a delivery that was read has the time of a
// request; the rest of another is not waited for.
func (d *delivery) end(read bool) {
	if d.began.IsZero() {
		return
	}
	d.slots.release(d.address)
	if read {
		_ = d.control.SetReadDeadline(d.until) // a connection that is gone needs none
	}
}
