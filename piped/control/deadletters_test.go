package control_test

import (
	"context"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/c785c783/piped/piped/control/controltest"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/store"
	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
)

// TestDeadLetters: an administrator replays or drops the dead letters of one receiver, which the
// audit log records; a viewer is denied and changes nothing.
func TestDeadLetters(t *testing.T) {
	agent := controltest.Start(t, t.TempDir())
	client := controlv1.NewControlServiceClient(dial(t, agent.Server.Addr()))
	ctx := context.Background()
	if err := agent.Store.RegisterReceivers(ctx, "hook", "chat"); err != nil {
		t.Fatal(err)
	}
	if err := agent.Store.Announce(ctx, deploy.Event{Key: "e", Type: deploy.EventPipedStarted, Payload: []byte("{}"), At: agent.Now()}); err != nil {
		t.Fatal(err)
	}
	events, err := agent.Store.Events(ctx, 0, 0)
	if err != nil || len(events) != 1 {
		t.Fatal(events, err)
	}
	deliveries := []deploy.Delivery{{Receiver: "hook", Event: events[0]}, {Receiver: "chat", Event: events[0]}}
	if err := agent.Store.RouteEvents(ctx, []int64{events[0].Seq}, deliveries...); err != nil {
		t.Fatal(err)
	}
	for _, d := range deliveries {
		if err := agent.Store.GiveUpDelivery(ctx, d, "gone"); err != nil {
			t.Fatal(err)
		}
	}
	want := func(hookPending, hookDead, chatDead int) {
		t.Helper()
		states, err := agent.Store.ReceiverStates(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if hook, chat := states["hook"], states["chat"]; hook.Pending != hookPending || hook.Dead != hookDead || chat.Dead != chatDead {
			t.Errorf("hook has %d pending and %d dead, chat %d dead; want %d, %d, %d", hook.Pending, hook.Dead, chat.Dead, hookPending, hookDead, chatDead)
		}
	}
	replay, drop := &controlv1.ReplayDeadLettersRequest{Receiver: "hook"}, &controlv1.DropDeadLettersRequest{Receiver: "chat"}
	viewer := as(t, agent.ReadOnly)
	if _, err := client.ReplayDeadLetters(viewer, replay); status.Code(err) != codes.PermissionDenied {
		t.Errorf("a viewer replays: %v", err)
	}
	if _, err := client.DropDeadLetters(viewer, drop); status.Code(err) != codes.PermissionDenied {
		t.Errorf("a viewer drops: %v", err)
	}
	want(0, 1, 1)
	owner := as(t, agent.ReadWrite)
	if resp, err := client.ReplayDeadLetters(owner, replay); err != nil || resp.Count != 1 {
		t.Errorf("replayed %v, %v", resp, err)
	}
	want(1, 0, 1)
	if resp, err := client.DropDeadLetters(owner, drop); err != nil || resp.Count != 1 {
		t.Errorf("dropped %v, %v", resp, err)
	}
	want(1, 0, 0)
	for receiver, code := range map[string]codes.Code{"": codes.InvalidArgument, "unknown": codes.NotFound} {
		if _, err := client.DropDeadLetters(owner, &controlv1.DropDeadLettersRequest{Receiver: receiver}); status.Code(err) != code {
			t.Errorf("drop of %q: %v, want %s", receiver, err, code)
		}
		if _, err := client.ReplayDeadLetters(owner, &controlv1.ReplayDeadLettersRequest{Receiver: receiver}); status.Code(err) != code {
			t.Errorf("replay of %q: %v, want %s", receiver, err, code)
		}
	}
	records, _, err := agent.Store.ListAudit(ctx, store.AuditQuery{Code: "OK"})
	if err != nil || len(records) != 2 {
		t.Fatalf("the audit log: %+v, %v", records, err)
	}
}
