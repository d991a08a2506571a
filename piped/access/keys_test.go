package access

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/c785c783/piped/piped/deploy"
)

func TestNewAPIKey(t *testing.T) {
	form := regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}\.[a-z0-9]{32}$`)
	now := time.UnixMilli(1_700_000_000_000)
	seen := map[string]bool{}
	letters := map[rune]bool{}
	for range 200 {
		record, key, err := NewAPIKey("ci", "robot", deploy.ReadOnly, now, rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		if !form.MatchString(key) || seen[key] {
			t.Fatalf("the key %q has not the form or came twice", key)
		}
		seen[key] = true
		id, secret, _ := strings.Cut(key, ".")
		for _, r := range secret {
			letters[r] = true
		}
		if record.ID != id || record.Name != "ci" || record.Subject != "robot" || record.Role != deploy.ReadOnly || !record.CreatedAt.Equal(now) || record.Disabled {
			t.Errorf("the record is %+v", record)
		}
		if strings.Contains(fmt.Sprintf("%s %x %+v", record.Hash, record.Hash, record), secret) {
			t.Error("the record holds the secret")
		}
		if !matches(record.Hash, key) || matches(record.Hash, key+"x") || matches(record.Hash, secret) || matches(nil, key) || matches(nil, "") {
			t.Error("the record matches something else than its key")
		}
	}
	if len(letters) != len(secretAlphabet) {
		t.Errorf("200 secrets use %d characters, want all %d", len(letters), len(secretAlphabet))
	}
}

func TestRecordOfAKeyThatIsKept(t *testing.T) {
	now := time.UnixMilli(1_700_000_000_000)
	record, key, err := NewAPIKey("owner", "ada", deploy.ReadWrite, now, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	again, err := RecordOf(key, "owner", "ada", deploy.ReadWrite, now)
	if diff := cmp.Diff(record, again); err != nil || diff != "" {
		t.Errorf("error %v; the record of the same key differs:\n%s", err, diff)
	}
	for _, wrong := range []string{"", ".", "id.", ".s3cret", "s3cret", "id.s3cret.x"} {
		_, err := RecordOf(wrong, "owner", "ada", deploy.ReadWrite, now)
		if !deploy.IsKind(err, deploy.Invalid) || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%q: error %v, want one of kind invalid that does not contain it", wrong, err)
		}
	}
}

// TestSecretsAreUniform: bytes that would make some characters more likely are discarded.
func TestSecretsAreUniform(t *testing.T) {
	input := append(bytes.Repeat([]byte{252, 253, 254, 255}, 100), bytes.Repeat([]byte{0, 35, 36, 251}, 8)...)
	got, err := newSecret(bytes.NewReader(input))
	if want := strings.Repeat("a9a9", 8); err != nil || got != want {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
}

func TestNewAPIKeyWithoutRandomness(t *testing.T) {
	for _, available := range []int64{0, 16, 40} {
		_, key, err := NewAPIKey("ci", "robot", deploy.ReadOnly, time.Time{}, io.MultiReader(io.LimitReader(rand.Reader, available), iotest.ErrReader(errors.New("no entropy"))))
		if err == nil || key != "" || !strings.Contains(err.Error(), `API key "ci": no entropy`) {
			t.Errorf("with %d bytes: key %q, error %v", available, key, err)
		}
	}
}
