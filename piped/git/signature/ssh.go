package signature

import (
	"bytes"
	"encoding/pem"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/hiddeco/sshsig"
	"golang.org/x/crypto/ssh"
)

// gitNamespace is the namespace of Git's signatures. A signature for another purpose does not
// count.
const gitNamespace = "git"

// sshKey is one line of a key file.
type sshKey struct {
	key          ssh.PublicKey
	name         string    // the principals or the comment
	after, until time.Time // validity of the key; zero means no limit
}

// addSSH reads the lines of a file: "principals [options] type key [comment]" as in
// an allowed signers file (see ssh-keygen), or "type key [comment]" as in
// authorized_keys.
func (k *Keys) addSSH(data []byte) error {
	before := len(k.ssh)
	for i, line := range strings.Split(string(data), "\n") {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		key, err := parseSigner(line)
		if err != nil {
			return fmt.Errorf("line %d: %w", i+1, err)
		}
		if key != nil {
			k.ssh = append(k.ssh, *key)
		}
	}
	if len(k.ssh) == before {
		return errors.New("it holds no key that may sign commits")
	}
	return nil
}

// parseSigner parses one line. It returns nil for a key that may not sign commits because its
// namespaces do not include git.
func parseSigner(line string) (*sshKey, error) {
	words := fields(line)
	kind := slices.IndexFunc(words, isKeyType)
	if kind < 0 || kind > 2 || kind+1 >= len(words) {
		return nil, errors.New(`expected "principals [options] type key", or "type key"`)
	}
	pub, comment, _, _, err := ssh.ParseAuthorizedKey([]byte(strings.Join(words[kind:], " ")))
	if err != nil {
		return nil, fmt.Errorf("read the key: %w", err)
	}
	if _, ok := pub.(*ssh.Certificate); ok {
		return nil, errors.New("certificates are not supported; give the keys themselves")
	}
	key := &sshKey{key: pub, name: comment}
	if kind >= 1 {
		key.name = strings.Trim(words[0], `"`)
		if looksLikeOption(key.name) {
			return nil, fmt.Errorf("%q is an option of authorized_keys, which would have no effect; write principals there, as in an allowed signers file", words[0])
		}
	}
	if kind < 2 {
		return key, nil
	}
	return key.restrict(words[1])
}

// fields splits a line at white space outside of quotes.
func fields(line string) []string {
	quoted := false
	return strings.FieldsFunc(line, func(r rune) bool {
		if r == '"' {
			quoted = !quoted
		}
		return !quoted && (r == ' ' || r == '\t' || r == '\r')
	})
}

func isKeyType(word string) bool {
	return strings.HasPrefix(word, "ssh-") || strings.HasPrefix(word, "ecdsa-sha2-") || strings.HasPrefix(word, "sk-")
}

// looksLikeOption reports whether a word is an option that precedes a key in authorized_keys.
func looksLikeOption(word string) bool {
	word, _, assigned := strings.Cut(strings.ToLower(word), "=")
	plain := []string{"cert-authority", "restrict", "pty", "agent-forwarding", "port-forwarding", "user-rc", "x11-forwarding", "verify-required"}
	return assigned || strings.HasPrefix(word, "no-") || slices.ContainsFunc(strings.Split(word, ","), func(w string) bool { return slices.Contains(plain, w) })
}

// restrict applies the options of an allowed signers file to k. It returns nil if the
// namespaces exclude git.
func (k *sshKey) restrict(options string) (*sshKey, error) {
	for _, option := range splitOptions(options) {
		name, value, _ := strings.Cut(option, "=")
		value = strings.Trim(value, `"`)
		var err error
		switch strings.ToLower(name) {
		case "namespaces":
			if !slices.ContainsFunc(strings.Split(value, ","), matchesGit) {
				return nil, nil
			}
		case "valid-after":
			k.after, err = parseTime(value)
		case "valid-before":
			k.until, err = parseTime(value)
		case "cert-authority":
			err = errors.New("certificates are not supported; give the keys themselves")
		default:
			err = errors.New("it is none of namespaces, valid-after and valid-before")
		}
		if err != nil {
			return nil, fmt.Errorf("option %q: %w", option, err)
		}
	}
	return k, nil
}

func splitOptions(options string) []string {
	quoted := false
	return strings.FieldsFunc(options, func(r rune) bool {
		if r == '"' {
			quoted = !quoted
		}
		return !quoted && r == ','
	})
}

func matchesGit(pattern string) bool {
	ok, err := path.Match(pattern, gitNamespace)
	return ok && err == nil
}

// parseTime parses YYYYMMDD[HHMM[SS]]: in UTC with a Z at the end, otherwise in local time, as
// ssh-keygen does.
func parseTime(text string) (time.Time, error) {
	digits, utc := strings.CutSuffix(text, "Z")
	zone := time.Local
	if utc {
		zone = time.UTC
	}
	for _, layout := range []string{"20060102", "200601021504", "20060102150405"} {
		if len(layout) == len(digits) {
			return time.ParseInLocation(layout, digits, zone)
		}
	}
	return time.Time{}, fmt.Errorf("expected a time such as 20301231 or 20301231235959Z, found %q", text)
}

// verifySSH returns the name and the fingerprint of the key that signed the commit.
func (k *Keys) verifySSH(c commit) (string, error) {
	block, rest := pem.Decode([]byte(c.signature))
	if block == nil || block.Type != sshsig.PEMType {
		return "", errors.New("its signature cannot be read")
	}
	if len(bytes.TrimSpace(rest)) > 0 {
		return "", errSeveral
	}
	sig, err := sshsig.ParseSignature(block.Bytes)
	if err != nil {
		return "", fmt.Errorf("its signature cannot be read: %w", err)
	}
	fingerprint := ssh.FingerprintSHA256(sig.PublicKey)
	given := slices.Collect(k.sshKeys(sig.PublicKey))
	if len(given) == 0 {
		return "", fmt.Errorf("the SSH key %s that signed it is not one of those given", fingerprint)
	}
	for _, key := range given {
		if err := sshsig.Verify(bytes.NewReader(c.payload), sig, key.key, sig.HashAlgorithm, gitNamespace); err != nil {
			return "", fmt.Errorf("its signature with the SSH key %s does not verify: %w", fingerprint, err)
		}
		if !c.at.Before(key.after) && (key.until.IsZero() || c.at.Before(key.until)) {
			return fmt.Sprintf("%s (SSH key %s)", key.name, fingerprint), nil
		}
	}
	return "", fmt.Errorf("the SSH key %s that signed it was not valid at %s, when it was made", fingerprint, day(c.at))
}

// sshKeys yields the configured entries of a key; several lines can list the same key.
func (k *Keys) sshKeys(key ssh.PublicKey) func(func(sshKey) bool) {
	return func(yield func(sshKey) bool) {
		for _, given := range k.ssh {
			if bytes.Equal(given.key.Marshal(), key.Marshal()) && !yield(given) {
				return
			}
		}
	}
}
