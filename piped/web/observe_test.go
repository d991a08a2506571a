package web

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/c785c783/piped/piped/githost"
)

// told is an Observer that notes what it is told.
type told struct {
	mu    sync.Mutex
	lines []string
}

// Delivered implements Observer.
func (o *told) Delivered(webhook string, what Delivery) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.lines = append(o.lines, fmt.Sprint(webhook, " ", what))
}

// TestObserver: what becomes of deliveries is told; a webhook that there is not tells
// nothing, for its name is the sender's.
func TestObserver(t *testing.T) {
	o := &told{}
	s, err := New(Config{Address: "127.0.0.1:0", Observer: o})
	if err != nil {
		t.Fatal(err)
	}
	s.SetWebhooks(Webhooks{Receivers: map[string]*githost.Receiver{"github": receiver(t, secret)}})
	run(t, s)
	b, body, none := &lab{t: t, server: s}, pushOf("shop/config", "main"), "not what was signed"
	b.send(http.MethodPost, "/webhooks/github", header(secret, body), strings.NewReader(body))
	b.send(http.MethodPost, "/webhooks/github", header(another, body), strings.NewReader(body))
	b.send(http.MethodPost, "/webhooks/github", header(secret, none), strings.NewReader(none))
	b.send(http.MethodPost, "/webhooks/evil", header(secret, body), strings.NewReader(body))
	if diff := cmp.Diff([]string{"github accepted", "github unproven", "github refused"}, o.lines); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := deliveryOf(http.StatusServiceUnavailable); got != Busy {
		t.Errorf("%s, want %s", got, Busy)
	}
}
