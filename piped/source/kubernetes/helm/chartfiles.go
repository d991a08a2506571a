package helm

import (
	"encoding/base64"
	"path"
	"strings"

	"github.com/gobwas/glob"
	"helm.sh/helm/v4/pkg/chart/common"
)

// chartFiles is .Files in templates: the content of a chart's other files, by name. The
// methods behave as in Helm.
type chartFiles map[string][]byte

func newChartFiles(from []*common.File) chartFiles {
	out := chartFiles{}
	for _, f := range from {
		out[f.Name] = f.Data
	}
	return out
}

// GetBytes returns a file's content; empty if the file does not exist.
func (f chartFiles) GetBytes(name string) []byte {
	if data, ok := f[name]; ok {
		return data
	}
	return []byte{}
}

// Get returns a file's content; "" if the file does not exist.
func (f chartFiles) Get(name string) string { return string(f.GetBytes(name)) }

// Glob returns the files whose names match; all files if the pattern is invalid.
func (f chartFiles) Glob(pattern string) chartFiles {
	g, err := glob.Compile(pattern, '/')
	if err != nil {
		g = glob.MustCompile("**")
	}
	out := chartFiles{}
	for name, data := range f {
		if g.Match(name) {
			out[name] = data
		}
	}
	return out
}

// AsConfig returns the files as YAML for the data of a ConfigMap, by base name.
func (f chartFiles) AsConfig() string {
	return f.asYAML(func(data []byte) string { return string(data) })
}

// AsSecrets returns the files as YAML for the data of a Secret, in base64, by base name.
func (f chartFiles) AsSecrets() string { return f.asYAML(base64.StdEncoding.EncodeToString) }

func (f chartFiles) asYAML(text func([]byte) string) string {
	if f == nil {
		return ""
	}
	out := map[string]string{}
	for name, data := range f {
		out[path.Base(name)] = text(data)
	}
	return toYAML(out)
}

// Lines returns the lines of a file.
func (f chartFiles) Lines(name string) []string {
	if len(f[name]) == 0 {
		return []string{}
	}
	return strings.Split(strings.TrimSuffix(string(f[name]), "\n"), "\n")
}
