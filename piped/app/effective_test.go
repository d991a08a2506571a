package app

import (
	"strings"
	"testing"

	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/config/strict"
)

// TestWithUnchanged: what needs a restart stays as it was; the rest is the new one's.
func TestWithUnchanged(t *testing.T) {
	parse := func(text string) *config.Piped {
		cfg, _, err := Options{}.kinds().ParsePiped("/etc/piped/piped.yaml", []byte("apiVersion: pipecd.dev/v1beta1\nkind: Piped\nspec: "+text))
		if err != nil {
			t.Fatal(err)
		}
		return cfg
	}
	was := parse(`{pipedID: a, dataDir: /a, api: {address: "127.0.0.1:1"}, syncInterval: 1m}`)
	next := parse(`{pipedID: b, dataDir: /b, api: {address: "127.0.0.1:2", insecure: true}, web: {tlsCertFile: /c, tlsKeyFile: /k}, syncInterval: 2m, debug: {pprofAddress: "127.0.0.1:3"}, scripts: {isolation: none}}`)
	got := withUnchanged(next, was)
	if left := needRestart(was, got); len(left) > 0 {
		t.Errorf("shown as in effect, and needs a restart: %s", strings.Join(left, ", "))
	}
	if got.SyncInterval != next.SyncInterval {
		t.Errorf("the new interval is not in effect: %s", got.SyncInterval)
	}
	if text := got.Effective(); !strings.Contains(text, "insecure: false # default\n") || !strings.Contains(text, "syncInterval: 2m\n") || !strings.Contains(text, "isolation: auto # default\n") {
		t.Errorf("where the values come from: %s", text)
	}
	if next.Store = (config.Store{DSN: strict.NewSecret("x")}); got.Store.DSN.Equal(next.Store.DSN) {
		t.Error("the new store is shown")
	}
}
