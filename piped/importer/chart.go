package importer

import (
	"fmt"
	"io/fs"
	"maps"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"
)

// chart is a Helm chart with its options.
type chart struct {
	dir         string     // of a chart in the checkout
	remote      *helmChart // of any other
	release     string
	values      []string // files of the checkout or addresses, the last wins
	inline      map[string]any
	text        string // of inline, as written; "" if it was changed
	sets, files map[string]string
	kubeVersion string
	apiVersions []string
	skipMissing bool
}

func (c *chart) setFile(name, file string) { c.files = merged(c.files, map[string]string{name: file}) }

// inlineValues reads values that stand in a document, as a text or as an object.
func (u *unit) inlineValues(h field, c *chart) {
	text, object := h.get("values"), h.get("valuesObject")
	if values, ok := object.raw().(map[string]any); ok {
		text.none()
		c.inline = values
		return
	}
	c.text = text.text()
	if err := yaml.Unmarshal([]byte(c.text), &c.inline); err != nil {
		text.block("the values are not valid YAML: %v", err)
	}
	if len(c.inline) == 0 {
		c.text = ""
	}
}

var dotted = regexp.MustCompile(`^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$`)

// parameters converts values as helm --set and --set-string take them.
func (u *unit) parameters(list field, c *chart) {
	for _, p := range list.items() {
		name, value, text := p.get("name").text(), p.get("value").text(), p.get("forceString").flag()
		switch {
		case !u.noBuildVariable(p.get("value")):
		case !text:
			if !strings.HasPrefix(value, "{") {
				value = strings.ReplaceAll(strings.ReplaceAll(value, `\,`, ","), ",", `\,`)
			}
			c.sets = merged(c.sets, map[string]string{name: value})
		case !dotted.MatchString(name):
			p.block("a text that is not to become a number or a boolean has to stand in values, and this name cannot be written there")
		default:
			if c.inline == nil {
				c.inline = map[string]any{}
			}
			if !setValue(c.inline, strings.Split(name, "."), value) {
				p.block("the values have no mapping at this name")
			}
			c.text = ""
		}
	}
}

// setValue sets a value at a path of keys, and reports whether there are only mappings on the way.
func setValue(values map[string]any, keys []string, value any) bool {
	for _, key := range keys[:len(keys)-1] {
		below, ok := values[key].(map[string]any)
		if !ok {
			if values[key] != nil {
				return false
			}
			below = map[string]any{}
			values[key] = below
		}
		values = below
	}
	values[keys[len(keys)-1]] = value
	return true
}

// place chooses the directory of an application with a chart, and writes the chart into its
// configuration. Files of values have to be in that directory: it is the chart's, or the one that
// contains all of them, or a new one with copies.
func (u *unit) place(c chart, a *application) bool {
	if c.dir != "" && len(c.values) > 0 && c.values[0] == path.Join(c.dir, "values.yaml") {
		c.values = c.values[1:] // the chart's defaults
	}
	var local []string
	for _, file := range append(slices.Clone(c.values), slices.Collect(maps.Values(c.files))...) {
		if !isURL(file) {
			local = append(local, file)
		}
	}
	common := commonDir(local)
	copied := false
	switch {
	case c.dir != "" && (len(local) == 0 || within(common, c.dir)):
		a.dir = c.dir
	case len(local) > 0 && common != ".":
		a.dir = common
	default:
		a.dir = u.ownDir(a.spec.Name)
		copied = len(local) > 0
	}
	in := &a.spec.Input
	if in.HelmChart = c.remote; c.remote != nil && (hasPassword(c.remote.Repository) || hasPassword(c.remote.GitRemote)) {
		u.root.track.add("", true, false, "the address of the chart has a password, which does not belong into Git: remove it there, give it to spec.chartRepositories, spec.chartRegistries or spec.git of the agent, and import again")
		return false
	}
	if c.remote == nil {
		in.HelmChart = &helmChart{Path: relative(a.dir, c.dir)}
		if !within(c.dir, a.dir) {
			a.spec.watch(c.dir)
		}
	}
	o := &helmOptions{SetValues: c.sets, APIVersions: c.apiVersions, KubeVersion: c.kubeVersion}
	if c.release != a.spec.Name {
		o.ReleaseName = c.release
	}
	inline, ok := u.writeInline(c, a) // before the copies, which give way
	if !ok {
		return false
	}
	for _, file := range c.values {
		name, ok := u.own(file, a, copied)
		if !ok {
			return false
		}
		o.ValueFiles = append(o.ValueFiles, name)
	}
	for _, key := range slices.Sorted(maps.Keys(c.files)) {
		name, ok := u.own(c.files[key], a, copied)
		if !ok {
			return false
		}
		o.SetFiles = merged(o.SetFiles, map[string]string{key: name})
	}
	if inline != "" {
		o.ValueFiles = append(o.ValueFiles, inline)
	}
	if o.ReleaseName != "" || len(o.ValueFiles)+len(o.SetValues)+len(o.SetFiles)+len(o.APIVersions) > 0 || o.KubeVersion != "" {
		in.HelmOptions = o
	}
	return true
}

// writeInline writes the values that stand in the document, and returns the name of their file; "" without any.
func (u *unit) writeInline(c chart, a *application) (name string, ok bool) {
	if len(c.inline) == 0 {
		return "", true
	}
	text := []byte(c.text)
	if c.text == "" {
		var err error
		if text, err = marshal(c.inline); err != nil {
			u.root.track.add("spec", true, false, "write the values: %v", err)
			return "", false
		}
	}
	name = u.unused(a.spec.Name, func(name string) string { return path.Join(a.dir, name+".values.yaml") }) + ".values.yaml"
	a.files = append(a.files, File{path.Join(a.dir, name), text})
	return name, true
}

// hasPassword reports whether an address contains a password.
func hasPassword(address string) bool {
	u, err := url.Parse(address)
	if err != nil || u.User == nil {
		return false
	}
	_, has := u.User.Password()
	return has
}

// own returns the name of a file in the directory of the application, after copying it there if
// it lies elsewhere.
func (u *unit) own(file string, a *application, copied bool) (string, bool) {
	if isURL(file) {
		return file, true
	}
	if !copied {
		return relative(a.dir, file), true
	}
	text, err := fs.ReadFile(u.Checkout.Files, file)
	if err != nil {
		u.root.track.add("", true, false, "read %s: %v", file, err)
		return "", false
	}
	name := strings.ReplaceAll(file, "/", "-")
	for n := 2; a.writes(path.Join(a.dir, name)); n++ { // a/b-c and a-b/c are two files
		name = fmt.Sprintf("%d-%s", n, strings.ReplaceAll(file, "/", "-"))
	}
	a.files = append(a.files, File{path.Join(a.dir, name), text})
	u.root.track.add("", false, false, "%s is copied to %s, because files of values have to be in the directory of the application: change the copy, or move the file there", file, path.Join(a.dir, name))
	return name, true
}

// commonDir returns the directory that contains all files.
func commonDir(files []string) string {
	if len(files) == 0 {
		return "."
	}
	dir := path.Dir(files[0])
	for _, file := range files[1:] {
		for !within(file, dir) {
			dir = path.Dir(dir)
		}
	}
	return dir
}

// within reports whether a path is dir or below it.
func within(name, dir string) bool {
	return dir == "." || name == dir || strings.HasPrefix(name, dir+"/")
}
