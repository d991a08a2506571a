package githost

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"strings"

	"github.com/c785c783/piped/piped/deploy"
)

// signature decodes a signature header: prefix and a hexadecimal HMAC-SHA256. It rejects
// anything else, so that the body of an unsigned or weakly signed delivery is not read.
func signature(r *http.Request, header, prefix string) ([]byte, error) {
	value := r.Header.Get(header)
	text, ok := strings.CutPrefix(value, prefix)
	mac, err := hex.DecodeString(text)
	switch {
	case value == "":
		return nil, deploy.Errorf(deploy.Denied, "the delivery has no header %s: it was not signed; set the secret at the Git host", header)
	case !ok || err != nil || len(mac) != sha256.Size:
		return nil, deploy.Errorf(deploy.Denied, "header %s holds no HMAC-SHA256 of the form %s<64 hexadecimal digits>", header, prefix)
	}
	return mac, nil
}

// verify checks an HMAC-SHA256 of data in constant time.
func verify(data, mac, secret []byte) error {
	want := hmac.New(sha256.New, secret)
	want.Write(data)
	if !hmac.Equal(mac, want.Sum(nil)) {
		return errWrongSecret()
	}
	return nil
}

func errWrongSecret() error {
	return deploy.Errorf(deploy.Denied, "the delivery was signed with another secret; set the same secret here and at the Git host")
}
