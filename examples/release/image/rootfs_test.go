package image

import (
	"archive/tar"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/v1/mutate"
)

// unpacked is the file system of an image.
type unpacked struct {
	headers map[string]*tar.Header
	content map[string][]byte
}

func unpack(t *testing.T) unpacked {
	t.Helper()
	r := mutate.Extract(makeSmall(t).Platforms[targets[0]])
	defer r.Close()
	u := unpacked{map[string]*tar.Header{}, map[string][]byte{}}
	for in := tar.NewReader(r); ; {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			return u
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(in)
		if err != nil {
			t.Fatal(err)
		}
		name := strings.Trim(h.Name, "/")
		u.headers[name], u.content[name] = h, content
	}
}

// The image has what a program needs of a machine, and nothing else.
func TestFilesOfTheImage(t *testing.T) {
	u := unpack(t)
	for name, want := range map[string]string{
		"etc/passwd": "0644 0", "tmp": "1777 0", "etc/piped": "0755 0", "var/lib/piped": "0700 65532", "usr/local/bin/piped": "0755 0",
	} {
		h := u.headers[name]
		if h == nil {
			t.Errorf("%s is missing", name)
		} else if got := fmt.Sprintf("%04o %d", h.Mode, h.Uid); got != want {
			t.Errorf("%s has mode and owner %s, want %s", name, got, want)
		}
	}
	for name := range u.headers {
		top, _, _ := strings.Cut(name, "/")
		if !strings.Contains(" etc tmp usr var ", " "+top+" ") {
			t.Errorf("%s is not expected in the image", name)
		}
		if h := u.headers[name]; h.Mode&0o022 != 0 && name != "tmp" {
			t.Errorf("others may write %s: mode %o", name, h.Mode)
		}
	}
	if !strings.Contains(string(u.content["etc/passwd"]), "\npiped:x:65532:65532:") {
		t.Errorf("the user is missing:\n%s", u.content["etc/passwd"])
	}
}

// The certificate authorities are many, are authorities, and have the one of Let's
// Encrypt among them.
func TestCertificatesOfTheImage(t *testing.T) {
	names := map[string]bool{}
	for rest := unpack(t).content["etc/ssl/certs/ca-certificates.crt"]; len(rest) > 0; {
		block, after := pem.Decode(rest)
		if block == nil {
			t.Fatalf("this is no certificate: %q", rest)
		}
		rest = after
		certificate, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			t.Fatal(err)
		}
		if !certificate.IsCA {
			t.Errorf("%s is no authority", certificate.Subject)
		}
		names[certificate.Subject.CommonName] = true
	}
	if len(names) < 80 || !names["ISRG Root X1"] {
		t.Errorf("there are %d authorities, want at least 80, and ISRG Root X1: %t", len(names), names["ISRG Root X1"])
	}
}

// A time zone of the image has the offsets that the place has.
func TestTimeZonesOfTheImage(t *testing.T) {
	zone, err := time.LoadLocationFromTZData("Europe/Berlin", unpack(t).content["usr/share/zoneinfo/Europe/Berlin"])
	if err != nil {
		t.Fatal(err)
	}
	for month, want := range map[time.Month]int{time.January: 3600, time.July: 7200} {
		if _, got := time.Date(2026, month, 1, 12, 0, 0, 0, zone).Zone(); got != want {
			t.Errorf("Berlin is %d s before UTC in %s, want %d", got, month, want)
		}
	}
}
