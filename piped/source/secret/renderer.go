package secret

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/deploy"
)

// renderTimeout is the maximum time for the templates of one application. Unless the machine is
// overloaded, templates reach the limits of their meter long before.
const renderTimeout = 20 * time.Second

var errSlow = fmt.Errorf("the application's templates are not rendered after %s; use smaller loops and texts, or try again", renderTimeout)

// Renderer renders the templates of applications with its current keys. It is safe for
// concurrent use. A nil Renderer has no keys.
type Renderer struct{ keys atomic.Pointer[Keys] }

// New returns a Renderer with the given keys; nil means none.
func New(keys *Keys) *Renderer {
	r := &Renderer{}
	r.Use(keys)
	return r
}

// Use replaces the keys for later renderings; nil means none.
func (r *Renderer) Use(keys *Keys) { r.keys.Store(keys) }

// Fingerprint returns the fingerprint of the keys; "" without keys. While it stays the same, the
// result of a rendering stays the same.
func (r *Renderer) Fingerprint() string { return r.current().Fingerprint() }

// Encryption returns the format and the public key for encrypting secrets; zero without keys.
func (r *Renderer) Encryption() deploy.AgentEncryption { return r.current().Public() }

// Encrypt encrypts plaintext for spec.encryption.encryptedSecrets of an application. Without
// keys the error is of kind Illegal.
func (r *Renderer) Encrypt(plaintext []byte) (string, error) {
	keys := r.current()
	if keys == nil || keys.cipher == nil {
		return "", deploy.Errorf(deploy.Illegal, "the agent has no keys to encrypt secrets with: add secretManagement to its configuration")
	}
	return keys.Encrypt(plaintext)
}

func (r *Renderer) current() *Keys {
	if r == nil {
		return nil
	}
	return r.keys.Load()
}

// Tree returns the files of tree with the targets of enc and att rendered. Both may be nil; their
// files are relative to dir, the application's directory. It ignores an encryption without
// secrets and an attachment without sources, and returns tree itself if there is nothing to
// render.
//
// Decryption targets are rendered first, then attachment targets. Templates have the data
// .encryptedSecrets and .attachment, each by name. A file that is a target of both is rendered
// once, with the attachment targets. Sources are attached with their rendered content, so
// templates of decryption targets can use only sources that are not rendered as decryption
// targets.
//
// Errors are of kind Invalid, name the file, the line and what to change, and never contain a
// secret; several errors are joined. All other errors come from ctx or the tree.
func (r *Renderer) Tree(ctx context.Context, tree fs.FS, dir string, enc *config.Encryption, att *config.Attachment) (fs.FS, error) {
	if enc == nil || len(enc.EncryptedSecrets) == 0 {
		enc = &config.Encryption{}
	}
	if att == nil || len(att.Sources) == 0 {
		att = &config.Attachment{}
	}
	if len(enc.EncryptedSecrets) == 0 && len(att.Sources) == 0 {
		return tree, ctx.Err()
	}
	ctx, cancel := context.WithTimeoutCause(ctx, renderTimeout, errSlow)
	defer cancel()
	a := &application{meter: meter{ctx: ctx, left: budget}, files: newOverlay(tree), enc: enc, att: att, keys: r.current()}
	if err := a.render(dir); err != nil {
		return nil, err
	}
	return a.files, nil
}

// application is the state of rendering the templates of one application.
type application struct {
	meter meter
	files *overlay
	enc   *config.Encryption
	att   *config.Attachment
	keys  *Keys
	data  data
}

// render renders the decryption targets, then the attachment targets.
func (a *application) render(dir string) (err error) {
	if a.data.secrets, err = a.keys.decrypt(a.enc); err != nil {
		return err
	}
	a.files.redactor = NewRedactor(a.data.secrets)
	sources, err := a.locate(dir, a.att.Position, "attachment.sources.", a.att.Sources)
	if err != nil {
		return err
	}
	decrypted, err := a.locate(dir, a.enc.Position, "encryption.decryptionTargets", indexed(a.enc.DecryptionTargets))
	if err != nil {
		return err
	}
	attached, err := a.locate(dir, a.att.Position, "attachment.targets", indexed(a.att.Targets))
	if err != nil {
		return err
	}
	for name, file := range sources {
		if slices.Contains(values(attached), file) {
			return deploy.Errorf(deploy.Invalid, "%s: spec.attachment.sources.%s: %s is among the targets, too; a file is one of both", a.att.Position, name, file)
		}
	}
	first := slices.DeleteFunc(values(decrypted), func(file string) bool { return slices.Contains(values(attached), file) })
	if err := a.attach(sources, first); err != nil {
		return err
	}
	if err := a.fill(first); err != nil {
		return err
	}
	if err := a.attach(sources, nil); err != nil {
		return err
	}
	return a.fill(values(attached))
}

// locate returns the paths of files in the tree, by the same keys as files: names or indexes in
// a field of the configuration. position and field are for errors.
func (a *application) locate(dir, position, field string, files map[string]string) (map[string]string, error) {
	at := map[string]string{}
	var problems []error
	for _, name := range sortedKeys(files) {
		found, err := a.files.locate(dir, files[name])
		switch {
		case deploy.IsKind(err, deploy.Invalid):
			problems = append(problems, fmt.Errorf("%s: spec.%s%s: %w", position, field, name, err))
		case err != nil:
			return nil, err
		}
		at[name] = found
	}
	return at, errors.Join(problems...)
}

// attach reads the content of the sources into a.data, except the pending files, which are not
// rendered yet.
func (a *application) attach(sources map[string]string, pending []string) error {
	a.data.attachments = map[string]string{}
	for _, name := range sortedKeys(sources) {
		if slices.Contains(pending, sources[name]) {
			continue
		}
		text, err := a.files.text(sources[name])
		if err != nil {
			return err
		}
		a.data.attachments[name] = text
	}
	return nil
}

// fill renders targets and adds the results to the overlay.
func (a *application) fill(targets []string) error {
	var problems []error
	for _, file := range targets {
		text, err := a.files.text(file)
		if err == nil {
			text, err = a.data.render(&a.meter, file, text)
		}
		switch {
		case deploy.IsKind(err, deploy.Invalid):
			problems = append(problems, a.files.redactor.Error(err))
		case err != nil:
			return err
		default:
			a.files.rendered[file] = []byte(text)
		}
	}
	return errors.Join(problems...)
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// values returns the distinct values of m, sorted.
func values(m map[string]string) []string {
	return slices.Compact(slices.Sorted(maps.Values(m)))
}

// indexed returns the items of a list by their index, formatted for errors as [0].
func indexed(list []string) map[string]string {
	m := map[string]string{}
	for i, text := range list {
		m[fmt.Sprintf("[%d]", i)] = text
	}
	return m
}
