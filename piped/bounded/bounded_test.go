package bounded

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestTransport: an answer of the limit is read whole, one of more is an error.
func TestTransport(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, strings.Repeat("x", len(r.URL.Path)))
	}))
	defer server.Close()
	client := &http.Client{Transport: Transport(http.DefaultTransport, 10)}
	for path, whole := range map[string]bool{"/12345678": true, "/123456789": true, "/1234567890": false, "/" + strings.Repeat("1", 5000): false} {
		resp, err := client.Get(server.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		read, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close() // it was read, or its error says more
		if (err == nil) != whole || len(read) != min(len(path), 10) {
			t.Errorf("of %d bytes, %d are read, then %v", len(path), len(read), err)
		}
	}
	client.CloseIdleConnections()
}
