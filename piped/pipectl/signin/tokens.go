package signin

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"time"
)

// Saved is a sign-in that is stored in a file.
type Saved struct {
	Token      string    `json:"token"`
	Subject    string    `json:"subject"`
	Issuer     string    `json:"issuer"`
	ExpiresAt  time.Time `json:"expiresAt"`
	WebAddress string    `json:"webAddress"`
}

// Tokens stores one sign-in for each address of an agent, in files below a directory that only
// their owner can read.
type Tokens struct{ Dir string }

// maxName limits the name of a file; file systems permit 255 bytes.
const maxName = 200

// Path returns the file for the agent at an address.
func (t Tokens) Path(address string) string {
	return filepath.Join(t.Dir, url.PathEscape(address)+".json")
}

// Load returns the sign-in for an address; fs.ErrNotExist if there is none. A file that another
// user owns, can read or could have written is refused.
func (t Tokens) Load(address string) (Saved, error) {
	path := t.Path(address)
	f, err := os.Open(path)
	if err != nil {
		return Saved{}, err
	}
	defer f.Close() // only read
	if err := checkOwn(f); err != nil {
		return Saved{}, err
	}
	data, err := io.ReadAll(io.LimitReader(f, maxResponse))
	if err != nil {
		return Saved{}, err
	}
	var v Saved
	if err := json.Unmarshal(data, &v); err != nil || !tokenForm.MatchString(v.Token) {
		return Saved{}, fmt.Errorf("%s holds no token of a sign-in", path)
	}
	return v, nil
}

// checkOwn returns an error unless the file is a regular one of this user, for no others.
func checkOwn(f *os.File) error {
	info, err := f.Stat()
	switch {
	case err != nil:
		return err
	case !info.Mode().IsRegular():
		return fmt.Errorf("%s is not a regular file", f.Name())
	case info.Mode().Perm()&0o077 != 0:
		return fmt.Errorf("%s is open to others than its owner: its mode is %#o, not 0600", f.Name(), info.Mode().Perm())
	case !owned(info):
		return fmt.Errorf("%s belongs to another user", f.Name())
	}
	return nil
}

// Save replaces the sign-in for an address, whole or not at all.
func (t Tokens) Save(address string, v Saved) (err error) {
	path := t.Path(address)
	if len(filepath.Base(path)) > maxName {
		return fmt.Errorf("the address %s is too long for the name of a file", address)
	}
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(t.Dir, 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(t.Dir, ".new-*") // with mode 0600
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name()) // the first error matters
		}
	}()
	_, err = f.Write(append(data, '\n'))
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

// Remove deletes the sign-in for an address, if there is one.
func (t Tokens) Remove(address string) error {
	if err := os.Remove(t.Path(address)); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
