package notify_test

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/notify"
	"github.com/c785c783/piped/piped/notify/webhook"
	"github.com/c785c783/piped/piped/store/storetest"
)

// TestReplayedDeadLetterIsSent: a webhook that answered 410 gets the notification soon after the
// replay, not at the next poll. The dead letter of another receiver stays.
func TestReplayedDeadLetterIsSent(t *testing.T) {
	var repaired atomic.Bool
	got := make(chan struct{}, 10)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !repaired.Load() || r.URL.Path != "/hook" {
			w.WriteHeader(http.StatusGone)
			return
		}
		got <- struct{}{}
	}))
	defer server.Close()
	st := storetest.Reopen(t, storetest.Ready(t), time.Now)
	defer func() {
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	}()
	courier := notify.New(notify.Config{Store: st, ScanEvery: time.Hour, Logger: slog.New(slog.NewTextHandler(t.Output(), nil)), Now: time.Now})
	var receivers []notify.Receiver
	for _, name := range []string{"hook", "other"} {
		receivers = append(receivers, notify.Routed(name, webhook.New(webhook.Config{URL: server.URL + "/" + name, SignatureKey: "X-Signature", SignatureValue: "s", Now: time.Now}), notify.Route{}))
	}
	courier.SetReceivers(receivers...)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- courier.Run(ctx) }()
	defer func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	<-courier.Ready()
	event := deploy.Event{Key: "e", Type: deploy.EventPipedStarted, Payload: deploy.EventPayload{}.JSON(), At: time.Now().Add(-48 * time.Hour)}
	if err := st.Announce(ctx, event); err != nil {
		t.Fatal(err)
	}
	dead := func() [2]int {
		states, err := st.ReceiverStates(ctx)
		if err != nil {
			t.Fatal(err)
		}
		return [2]int{states["hook"].Dead, states["other"].Dead}
	}
	await(t, func() bool { return dead() == [2]int{1, 1} })
	repaired.Store(true)
	if n, err := st.ReplayDeadLetters(ctx, "hook"); err != nil || n != 1 {
		t.Fatalf("replayed %d, %v", n, err)
	}
	select {
	case <-got:
	case <-time.After(patience):
		t.Fatal("the webhook got nothing")
	}
	await(t, func() bool {
		states, err := st.ReceiverStates(ctx)
		return err == nil && states["hook"].Pending == 0
	})
	if dead() != [2]int{0, 1} {
		t.Errorf("dead letters of hook and other: %v, want 0 and 1", dead())
	}
}

// patience bounds what takes milliseconds on an idle machine.
const patience = 10 * time.Minute

// await waits until a condition holds.
func await(t *testing.T, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the condition does not hold")
		}
	}
}
