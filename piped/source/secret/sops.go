package secret

import (
	"bytes"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"strconv"
	"strings"
	"sync"

	"filippo.io/age"

	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/source/sops"
)

// loadSOPS loads the keys for SOPS files from the key files in the configuration.
func loadSOPS(s config.SOPS) (*sops.Keys, error) {
	var texts [3]string
	for i, file := range []struct{ field, name string }{
		{"ageIdentityFile", s.AgeIdentityFile}, {"pgpKeyFile", s.PGPKeyFile}, {"pgpPassphraseFile", s.PGPPassphraseFile},
	} {
		if file.name == "" {
			continue
		}
		content, err := os.ReadFile(file.name)
		if err != nil {
			return nil, deploy.Errorf(deploy.Invalid, "spec.sops.%s: %w", file.field, err)
		}
		if len(bytes.TrimSpace(content)) == 0 {
			return nil, deploy.Errorf(deploy.Invalid, "spec.sops.%s: %s is empty", file.field, file.name)
		}
		texts[i] = string(content)
	}
	var ids []age.Identity
	if s.AgeIdentityFile != "" {
		var err error
		if ids, err = ageIdentities(texts[0]); err != nil {
			return nil, deploy.Errorf(deploy.Invalid, "spec.sops.ageIdentityFile: %w", err)
		}
	}
	keys, err := sops.NewKeys(ids, texts[1], strings.TrimRight(texts[2], "\r\n"), texts[0]+"\n"+texts[1])
	if err != nil {
		return nil, deploy.Errorf(deploy.Invalid, "spec.sops.pgpKeyFile: %w", err)
	}
	return keys, nil
}

// Decrypted is a tree whose SOPS files are decrypted when they are opened. Opening a file that
// cannot be decrypted is an error of kind Invalid. Stat, Lstat and ReadDir describe the
// encrypted files.
type Decrypted struct {
	tree fs.FS
	keys *Keys

	mu      sync.Mutex
	opened  map[string][]byte // contents of SOPS files by path
	secrets map[string]string // their plaintexts, by path and index
}

// Decrypted returns a tree whose SOPS files are decrypted with the current keys.
func (r *Renderer) Decrypted(tree fs.FS) *Decrypted {
	return &Decrypted{tree: tree, keys: r.current(), opened: map[string][]byte{}, secrets: map[string]string{}}
}

var (
	_ fs.ReadDirFS  = (*Decrypted)(nil)
	_ fs.ReadFileFS = (*Decrypted)(nil)
	_ fs.StatFS     = (*Decrypted)(nil)
	_ fs.ReadLinkFS = (*Decrypted)(nil)
)

// Redactor returns a Redactor for the secrets that were decrypted so far and those of tree, which
// is from Renderer.Tree; nil without secrets.
func (d *Decrypted) Redactor(tree fs.FS) *Redactor {
	own := RedactorOf(tree)
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.secrets) == 0 {
		return own
	}
	all := maps.Clone(d.secrets)
	for name, text := range own.Secrets() {
		all["encryption "+name] = text
	}
	return NewRedactor(all)
}

// Open opens a file or a directory.
func (d *Decrypted) Open(name string) (fs.File, error) {
	f, err := d.tree.Open(name)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() || info.Size() > sops.MaxSize {
		return f, err
	}
	defer f.Close()
	data, err := io.ReadAll(f)
	if err != nil {
		return nil, err
	}
	if data, err = d.open(name, data); err != nil {
		return nil, err
	}
	return &file{Reader: bytes.NewReader(data), info: sized{info, int64(len(data))}}, nil
}

// open returns the content of a file, decrypted if it is a SOPS file.
func (d *Decrypted) open(name string, data []byte) ([]byte, error) {
	if !sops.Is(data) {
		return data, nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if plain, ok := d.opened[name]; ok {
		return plain, nil
	}
	var keys *sops.Keys
	how := sops.Reveal
	if d.keys != nil {
		keys, how = d.keys.sops, d.keys.how
	}
	f, ok, err := keys.Open(path.Base(name), data, how)
	if err != nil {
		return nil, deploy.Errorf(deploy.Invalid, "%s: %w", name, err)
	}
	if !ok {
		return data, nil
	}
	for i, text := range f.Secrets {
		d.secrets[name+" "+strconv.Itoa(i)] = text
	}
	d.opened[name] = f.Data
	return f.Data, nil
}

// ReadFile returns a copy of a file's content.
func (d *Decrypted) ReadFile(name string) ([]byte, error) {
	f, err := d.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(f)
}

// Stat describes a file or directory. It follows symbolic links.
func (d *Decrypted) Stat(name string) (fs.FileInfo, error) { return fs.Stat(d.tree, name) }

// Lstat describes a file, directory or symbolic link.
func (d *Decrypted) Lstat(name string) (fs.FileInfo, error) { return fs.Lstat(d.tree, name) }

// ReadLink returns the target of a symbolic link.
func (d *Decrypted) ReadLink(name string) (string, error) { return fs.ReadLink(d.tree, name) }

// ReadDir lists a directory, sorted by name.
func (d *Decrypted) ReadDir(name string) ([]fs.DirEntry, error) { return fs.ReadDir(d.tree, name) }
