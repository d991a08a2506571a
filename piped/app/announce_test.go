package app

import (
	"path/filepath"
	"testing"

	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/config/endpoint"
)

// TestAnnounce: the data directory says where a client on this machine reaches the
// agent, with absolute paths.
func TestAnnounce(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	cfg := &config.Piped{DataDir: ".", API: config.API{TLSCertFile: "tls.crt"}}
	if err := announce(cfg, "0.0.0.0:9083", "owner.key"); err != nil {
		t.Fatal(err)
	}
	got, _, err := endpoint.Find([]string{dir})
	want := endpoint.Endpoint{Address: "127.0.0.1:9083", CertFile: filepath.Join(dir, "tls.crt"), OwnerKeyFile: filepath.Join(dir, "owner.key")}
	if err != nil || got != want {
		t.Errorf("found %+v, %v, want %+v", got, err, want)
	}
}
