package kustomize

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"strings"

	"gopkg.in/yaml.v3"
	"sigs.k8s.io/kustomize/api/types"

	"github.com/c785c783/piped/piped/deploy"
)

// rewriter rewrites one kustomization so that each of its references is an existing path that
// begins with "./" or "../".
type rewriter struct {
	plan  *plan
	mount *mount
	dir   string
	file  string
	err   error // the first error

	namespace string // of the kustomization or, by default, of the referring ones
	own       bool   // the kustomization sets the namespace itself
}

// errorf records an error of kind Invalid for a field, unless there already is an error.
func (r *rewriter) errorf(field, format string, args ...any) {
	r.fail(field, deploy.Errorf(deploy.Invalid, format, args...))
}

func (r *rewriter) fail(field string, err error) {
	if r.err == nil {
		r.err = fmt.Errorf("%s: %s: %w", r.mount.named(r.file), field, err)
	}
}

// rewrite returns the rewritten kustomization as JSON.
func (r *rewriter) rewrite(k *kustomization) ([]byte, error) {
	each(k.Resources, r.base, "resources")
	each(k.Components, r.component, "components")
	each(k.Crds, r.onlyFile, "crds")
	each(k.Configurations, r.onlyFile, "configurations")
	r.generators(k)
	each(k.Transformers, r.plugin, "transformers")
	each(k.Validators, r.plugin, "validators")
	each(k.PatchesStrategicMerge, r.patch, "patchesStrategicMerge")
	for i := range k.Patches {
		r.optionalFile(fmt.Sprintf("patches[%d].path", i), &k.Patches[i].Path)
	}
	for i := range k.PatchesJson6902 {
		r.optionalFile(fmt.Sprintf("patchesJson6902[%d].path", i), &k.PatchesJson6902[i].Path)
	}
	for i := range k.Replacements {
		r.optionalFile(fmt.Sprintf("replacements[%d].path", i), &k.Replacements[i].Path)
	}
	for i := range k.ConfigMapGenerator {
		r.generator(fmt.Sprintf("configMapGenerator[%d]", i), &k.ConfigMapGenerator[i].KvPairSources)
	}
	for i := range k.SecretGenerator {
		r.generator(fmt.Sprintf("secretGenerator[%d]", i), &k.SecretGenerator[i].KvPairSources)
	}
	if schema, ok := k.OpenAPI["path"]; ok {
		r.onlyFile("openapi.path", &schema)
		k.OpenAPI["path"] = schema
	}
	r.charts(k)
	if r.err != nil {
		return nil, r.err
	}
	data, err := json.Marshal(k)
	if err != nil {
		return nil, fmt.Errorf("%s: write it anew: %w", r.mount.named(r.file), err)
	}
	return data, checkTexts(r, data)
}

// each calls visit for each item of a list. visit may replace the item.
func each[T any](list []T, visit func(field string, item *T), field string) {
	for i := range list {
		visit(fmt.Sprintf("%s[%d]", field, i), &list[i])
	}
}

// base rewrites an entry that refers to a file or a directory, local or remote.
func (r *rewriter) base(field string, entry *string) {
	if name, ok := r.here(*entry); isRemoteFile(*entry) && !ok {
		r.remoteFile(field, entry)
	} else if isRemote(*entry) && !ok {
		r.remote(field, entry)
	} else if r.local(field, entry) && isDir(r.mount, name) {
		r.descend(field, r.mount, name)
	}
}

// component rewrites an entry that refers to a directory, local or remote.
func (r *rewriter) component(field string, entry *string) {
	name, ok := r.here(*entry)
	if ok && !isDir(r.mount, name) {
		r.errorf(field, "%s is a file; expected a directory with a kustomization of kind Component", r.mount.named(name))
		return
	}
	if !ok && isRemoteFile(*entry) {
		r.errorf(field, "%s is a file; expected a directory with a kustomization of kind Component", redacted(*entry))
		return
	}
	r.base(field, entry)
}

// remote rewrites an entry that refers to a directory of another repository.
func (r *rewriter) remote(field string, entry *string) {
	ref, why := parseRemote(*entry)
	if why != "" {
		r.errorf(field, "%s: %s", redacted(*entry), why)
		return
	}
	m, err := r.plan.fetch(r.mount, ref)
	if err != nil {
		r.fail(field, fmt.Errorf("remote base %s: %w", redacted(*entry), err))
		return
	}
	r.descend(field, m, ref.dir)
	relative, err := filepath.Rel(r.mount.path(r.dir), m.path(ref.dir))
	if err != nil {
		r.fail(field, err)
	}
	*entry = "./" + relative
}

func (r *rewriter) descend(field string, m *mount, dir string) {
	if _, err := r.plan.directory(m, dir, r.namespace); err != nil && r.err == nil {
		r.err = err // the error already names the file
	}
	if below := r.plan.known[m.path(dir)]; below != nil && below.inherited && !r.own {
		r.plan.known[r.mount.path(r.dir)].inherited = true
	}
}

// here returns the path in the mount that an entry refers to, and whether it exists.
func (r *rewriter) here(entry string) (name string, ok bool) {
	name = path.Join(r.dir, entry)
	if entry == "" || path.IsAbs(entry) || name == ".." || strings.HasPrefix(name, "../") {
		return name, false
	}
	_, err := fs.Stat(r.mount.tree, name)
	return name, err == nil
}

// local checks that an entry is an existing path in the repository, and adds the prefix "./" so
// that Kustomize does not interpret it as remote. Otherwise it records an error and returns
// false.
func (r *rewriter) local(field string, entry *string) bool {
	name := path.Join(r.dir, *entry)
	switch {
	case *entry == "":
		r.errorf(field, "expected a path, found an empty text")
	case path.IsAbs(*entry):
		r.errorf(field, "%q is absolute; expected a path from the kustomization's directory", *entry)
	case ambiguous(*entry):
		r.errorf(field, "%q mixes .. with a name, which is often a list item that is not indented as the others", *entry)
	case name == ".." || strings.HasPrefix(name, "../"):
		r.errorf(field, "%q leads out of the repository", *entry)
	default:
		if _, err := fs.Stat(r.mount.tree, name); err != nil {
			r.missing(field, name, err)
			return false
		}
		*entry = "./" + path.Clean(*entry)
		return true
	}
	return false
}

func (r *rewriter) missing(field, name string, err error) {
	switch {
	case errors.Is(err, fs.ErrPermission):
		r.errorf(field, "%s: a symbolic link points out of the repository", r.mount.named(name))
	case errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrInvalid):
		r.errorf(field, "there is no file or directory %s", r.mount.named(name))
	default:
		r.fail(field, err)
	}
}

// ambiguous reports whether an element of a path has ".." and white space, for example
// ".. - base".
func ambiguous(entry string) bool {
	for part := range strings.SplitSeq(entry, "/") {
		if part != ".." && strings.Contains(part, "..") && strings.ContainsAny(part, " \t") {
			return true
		}
	}
	return false
}

// onlyFile rewrites an entry that must refer to a local file.
func (r *rewriter) onlyFile(field string, entry *string) {
	if _, ok := r.here(*entry); !ok && isRemote(*entry) {
		r.errorf(field, "%s: files are not fetched; commit the file", redacted(*entry))
		return
	}
	r.local(field, entry)
}

func (r *rewriter) optionalFile(field string, entry *string) {
	if *entry != "" {
		r.onlyFile(field, entry)
	}
}

// patch rewrites an entry that is a patch or the name of its file.
func (r *rewriter) patch(field string, entry *string) {
	if isMapping(*entry) {
		*entry = inline(*entry)
		return
	}
	r.onlyFile(field, entry)
}

// generator rewrites and checks the sources of a generated ConfigMap or Secret.
func (r *rewriter) generator(field string, from *types.KvPairSources) {
	each(from.EnvSources, r.onlyFile, field+".envs")
	each(from.FileSources, r.source, field+".files")
	for i, literal := range from.LiteralSources {
		if strings.Index(literal, "=") < 1 {
			r.errorf(fmt.Sprintf("%s.literals[%d]", field, i), "expected key=value (what is there is not shown)")
		}
	}
}

// source rewrites an entry of the form file or key=file.
func (r *rewriter) source(field string, entry *string) {
	key, file, ok := strings.Cut(*entry, "=")
	if !ok {
		r.onlyFile(field, entry)
		return
	}
	r.onlyFile(field, &file)
	*entry = key + "=" + file
}

func isDir(m *mount, name string) bool {
	info, err := fs.Stat(m.tree, name)
	return err == nil && info.IsDir()
}

// isMapping reports whether a text is a YAML mapping and thus not a path.
func isMapping(text string) bool {
	var doc yaml.Node
	err := yaml.Unmarshal([]byte(text), &doc)
	return err == nil && len(doc.Content) == 1 && doc.Content[0].Kind == yaml.MappingNode
}

// inline adds a comment in front of a text, so that Kustomize does not read it as a URL.
func inline(text string) string { return "# inline\n" + text }

// redacted returns a URL without user and password.
func redacted(entry string) string {
	scheme, rest, ok := strings.Cut(entry, "://")
	if !ok {
		return entry
	}
	host, path, _ := strings.Cut(rest, "/")
	if at := strings.LastIndex(host, "@"); at >= 0 {
		host = host[at+1:]
	}
	return scheme + "://" + host + "/" + path
}

// checkTexts applies checkAliases to all strings in a rewritten kustomization, because they may
// contain YAML.
func checkTexts(r *rewriter, data []byte) error {
	var v any
	if err := json.Unmarshal(data, &v); err != nil {
		return fmt.Errorf("%s: %w", r.mount.named(r.file), err)
	}
	var walk func(v any) error
	walk = func(v any) (err error) {
		switch v := v.(type) {
		case string:
			err = checkAliases([]byte(v))
		case []any:
			for i := 0; i < len(v) && err == nil; i++ {
				err = walk(v[i])
			}
		case map[string]any:
			for _, item := range v {
				if err = walk(item); err != nil {
					break
				}
			}
		}
		return err
	}
	if err := walk(v); err != nil {
		return deploy.Errorf(deploy.Invalid, "%s: a text inside: %w", r.mount.named(r.file), err)
	}
	return nil
}
