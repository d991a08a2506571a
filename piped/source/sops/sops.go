package sops

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// How determines the replacement of encrypted values.
type How int

const (
	// Reveal decrypts them.
	Reveal How = iota
	// Conceal verifies the file like Reveal but replaces each encrypted text by a hash of its
	// ciphertext.
	Conceal
	// Placeholders replaces each value by a constant of its type. It needs no keys and does
	// not verify the MAC.
	Placeholders
)

// File is the decrypted content of a SOPS file.
type File struct {
	Data []byte // in the format of the file, without the metadata of SOPS
	// Secrets are the plaintexts that must not be shown, without those that identify a
	// Kubernetes object, booleans and short numbers. For data of a Secret, both the base64
	// and the decoded text are included. Only How Reveal sets them.
	Secrets []string
}

// MaxSize is the maximum size of a SOPS file in bytes. A larger file is not recognized as one;
// Kubernetes objects are smaller.
const MaxSize = 2 << 20

// Is reports whether a file may be a SOPS file.
func Is(data []byte) bool {
	return len(data) <= MaxSize && bytes.Contains(data, []byte("ENC[AES256_GCM,")) && bytes.Contains(data, []byte("sops"))
}

// Open decrypts a file; its name determines the format. It returns ok == false if the file is
// not a SOPS file, or is an object of kind SopsSecret, which an operator in the cluster
// decrypts. Errors say what to change and contain nothing of the content.
func (k *Keys) Open(name string, data []byte, how How) (f File, ok bool, err error) {
	if !Is(data) {
		return File{}, false, nil
	}
	format := formatOf(name, data)
	docs, err := format.read(data)
	if err != nil && (errors.Is(err, errSyntax) || !bytes.Contains(data, []byte("mac"))) {
		return File{}, false, nil
	}
	if err != nil {
		return File{}, true, err
	}
	raw, found := takeMetadata(docs, format)
	if !found || raw.text("mac") == "" || docs[0].text("kind") == "SopsSecret" {
		return File{}, false, nil
	}
	md, err := readMetadata(raw)
	if err != nil {
		return File{}, true, err
	}
	f, err = k.open(docs, md, format, how)
	return f, true, err
}

// takeMetadata removes the metadata from documents and returns it, unflattened.
func takeMetadata(docs []mapping, format format) (md mapping, ok bool) {
	if len(docs) == 0 {
		return nil, false
	}
	if format.flat != "" {
		docs[0] = slices.DeleteFunc(docs[0], func(e entry) bool {
			key, is := strings.CutPrefix(e.key, format.flat)
			if is {
				md = append(md, entry{key, e.value})
			}
			return is
		})
		return unflatten(md), md != nil
	}
	for i := range docs {
		value, has := docs[i].take("sops")
		if m, is := value.(mapping); i == 0 && has && is {
			md, ok = m, true
		}
	}
	for i, e := range md {
		if text, is := e.value.(string); is && strings.Contains(e.key, "__list_") { // INI
			md[i].value = strings.ReplaceAll(text, `\n`, "\n")
		}
	}
	return unflatten(md), ok
}

var errChanged = errors.New("its MAC is not that of its values: it was changed after SOPS wrote it; edit it with sops")

// open decrypts documents whose metadata was removed, and verifies their MAC.
func (k *Keys) open(docs []mapping, md metadata, format format, how How) (File, error) {
	var key dataKey
	if how != Placeholders {
		if k == nil {
			return File{}, &NoKeyError{"it is encrypted with SOPS, and the agent has no keys for it: add sops to its configuration"}
		}
		var err error
		if key, err = k.dataKey(md); err != nil {
			return File{}, err
		}
	} else if !slices.ContainsFunc(md.groups, func(g group) bool { return len(g.age)+len(g.pgp) > 0 }) {
		_, err := (&Keys{}).dataKey(md)
		return File{}, err
	}
	o := opening{key: key, how: how, mac: newMAC(md.macOnly)}
	var out []mapping
	for _, doc := range docs {
		o.object = doc.text("apiVersion") != "" && doc.text("kind") != ""
		o.kind = doc.text("kind")
		m, err := walker{rules: md.rules, leaf: o.leaf}.mapping(doc, place{})
		if err != nil {
			return File{}, err
		}
		out = append(out, m)
	}
	if how != Placeholders {
		want, err := key.open(md.mac, md.lastModified)
		if err != nil || want != o.mac.sum() {
			return File{}, errChanged
		}
	}
	data, err := format.write(out)
	return File{Data: data, Secrets: o.secrets}, err
}

// opening is the state of replacing the encrypted values of a file.
type opening struct {
	key     dataKey
	how     How
	mac     mac
	object  bool   // the document is a Kubernetes object
	kind    string // of the object; ciphertext until leaf has decrypted it
	secrets []string
}

func (o *opening) leaf(path []string, value any, encrypted bool) (any, error) {
	if !encrypted {
		return value, o.mac.add(value, false)
	}
	text, ok := value.(string)
	if !ok {
		return nil, errFormat
	}
	out := value
	if o.how != Placeholders {
		var err error
		if out, err = o.key.open(text, boundTo(path)); err != nil {
			return nil, fmt.Errorf("%s: %w", strings.Join(path, "."), err)
		}
		if err := o.mac.add(out, true); err != nil {
			return nil, err
		}
	}
	names := o.object && namesObject(path)
	if plain, ok := out.(string); ok && path[0] == "kind" && o.how != Placeholders {
		o.kind = plain
	}
	encoded := o.kind == "Secret" && path[0] == "data"
	switch {
	case o.how == Placeholders:
		return placeholder(path, text, encoded), nil
	case names:
		return out, nil
	case o.how == Conceal:
		return standIn(text, func(ciphertext string) string {
			sum := sha256.Sum256([]byte(ciphertext))
			return inSecret("redacted-"+hex.EncodeToString(sum[:6]), encoded)
		}), nil
	}
	o.keep(out, encoded)
	return out, nil
}

// namesObject reports whether a field identifies its object (or is other metadata except
// annotations) and thus is not a secret.
func namesObject(path []string) bool {
	switch path[0] {
	case "apiVersion", "kind":
		return true
	case "metadata":
		return len(path) > 1 && path[1] != "annotations"
	}
	return false
}

// inSecret returns a text in base64, as in data of a Secret, if encoded is set.
func inSecret(text string, encoded bool) string {
	if encoded {
		return base64.StdEncoding.EncodeToString([]byte(text))
	}
	return text
}

// placeholder returns a constant for an encrypted value, of the same type.
func placeholder(path []string, text string, encoded bool) any {
	return standIn(text, func(string) string {
		switch strings.Join(path, ".") {
		case "apiVersion":
			return "v1"
		case "kind":
			return "Secret"
		}
		return inSecret("placeholder", encoded)
	})
}

// shortNumber is the maximum number of digits of a number that is not treated as a secret,
// because ports and numbers of replicas occur in too many messages.
const shortNumber = 5

// keep adds a decrypted value to the secrets, except booleans and short numbers.
func (o *opening) keep(value any, encoded bool) {
	text, ok := value.(string)
	if !ok {
		if _, isBool := value.(bool); isBool {
			return
		}
		if text, _ = plainText(value); len(text) <= shortNumber {
			return
		}
	}
	o.secrets = append(o.secrets, text)
	if plain, err := base64.StdEncoding.DecodeString(strings.TrimSpace(text)); encoded && err == nil {
		o.secrets = append(o.secrets, string(plain))
	}
}
