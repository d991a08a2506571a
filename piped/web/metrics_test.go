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

// recorder implements DeliveryMetrics.
type recorder struct {
	mu    sync.Mutex
	lines []string
}

// Delivered implements DeliveryMetrics.
func (o *recorder) Delivered(webhook string, what Delivery) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.lines = append(o.lines, fmt.Sprint(webhook, " ", what))
}

// TestDeliveryMetrics: deliveries are counted by webhook and result; unknown webhooks are
// not, since their name is chosen by the sender.
func TestDeliveryMetrics(t *testing.T) {
	o := &recorder{}
	s, err := New(Config{Address: "127.0.0.1:0", Deliveries: o})
	if err != nil {
		t.Fatal(err)
	}
	s.SetWebhooks(Webhooks{Receivers: map[string]*githost.Receiver{"github": receiver(t, secret)}})
	run(t, s)
	b, body, none := &env{t: t, server: s}, pushOf("shop/config", "main"), "not what was signed"
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
