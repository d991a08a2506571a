package pipectl

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/c785c783/piped/piped/config/endpoint"
	"github.com/c785c783/piped/piped/pipectl/signin"
)

// setting is a flag that an environment variable or the configuration file can also
// set. The flag takes precedence, then the variable.
type setting struct {
	flag string
	path bool // in the file: relative to the file's directory
	only bool // only from flag and variable: a secret
}

func settings() []setting {
	return []setting{
		{flag: "address"},
		{flag: "api-key", only: true},
		{flag: "api-key-file", path: true},
		{flag: "cert-file", path: true},
		{flag: "client-cert-file", path: true},
		{flag: "client-key-file", path: true},
		{flag: "insecure"},
		{flag: "output"},
	}
}

// variable returns the name of a flag's environment variable.
func variable(flag string) string {
	return "PIPECTL_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// applySettings fills in the values that no flag has set. API keys from different
// sources are not mixed.
func (t *tool) applySettings() error {
	if t.settingsApplied {
		return nil
	}
	file, err := readSettings()
	if err != nil {
		return err
	}
	keyFromFlag := t.flags.Changed("api-key") || t.flags.Changed("api-key-file")
	keyFromVariable := os.Getenv(variable("api-key")) != "" || os.Getenv(variable("api-key-file")) != ""
	for _, s := range settings() {
		isKey := strings.HasPrefix(s.flag, "api-key")
		value, from := os.Getenv(variable(s.flag)), variable(s.flag)
		if value == "" && !(isKey && keyFromVariable) {
			value, from = file.values[s.flag], file.path+": "+s.flag
		}
		if value == "" || t.flags.Changed(s.flag) || (isKey && keyFromFlag) {
			continue
		}
		if isKey && from != variable(s.flag) {
			if err := checkPrivate(value); err != nil {
				return err
			}
		}
		if err := t.flags.Lookup(s.flag).Value.Set(value); err != nil {
			return hint(fmt.Errorf("%s is %q", from, value), "set it to true or false, or remove it")
		}
	}
	t.settingsApplied = true
	return t.findAgent()
}

// findAgent sets the address and owner key of an agent on this machine, unless an
// address is configured. It does not use the key for another agent.
func (t *tool) findAgent() error {
	if t.conn.address != "" {
		return nil
	}
	found, file, err := endpoint.Find(t.dirs)
	if err != nil {
		t.conn.notFound = err
		return nil // the error of the missing address explains it
	}
	t.conn.address, t.conn.found = found.Address, file
	t.conn.insecure = t.conn.insecure || found.CertFile == ""
	if t.conn.certFile == "" {
		t.conn.certFile = found.CertFile
	}
	if t.conn.apiKey == "" && t.conn.apiKeyFile == "" {
		t.conn.apiKeyFile, t.conn.ownerKey = found.OwnerKeyFile, true
	}
	return nil
}

// useLogin takes the credentials of 'pipectl login', if there are some for the agent and no key
// is configured.
func (t *tool) useLogin() error {
	configured := t.conn.apiKey != "" || t.conn.apiKeyFile != "" && !t.conn.ownerKey
	dir := configDir()
	if configured || t.conn.address == "" || dir == "" {
		return nil
	}
	saved, err := logins(dir).Load(t.conn.address)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return hint(fmt.Errorf("read the sign-in at %s: %w", t.conn.address, err), "sign in again with 'pipectl login', or remove the file")
	}
	t.conn.session = saved.Token
	return nil
}

// logins returns the sign-ins that are stored in the directory of settings.
func logins(dir string) signin.Tokens { return signin.Tokens{Dir: filepath.Join(dir, "sessions")} }

// settingsFile is the content of the configuration file, by flag.
type settingsFile struct {
	path   string
	values map[string]string
}

// readSettings reads the file named by PIPECTL_CONFIG, which must exist, or the default
// one, which may be missing.
func readSettings() (settingsFile, error) {
	file := settingsFile{path: os.Getenv("PIPECTL_CONFIG"), values: map[string]string{}}
	named := file.path != ""
	if !named {
		file.path = usualSettings()
	}
	data, err := os.ReadFile(file.path)
	if !named && (file.path == "" || errors.Is(err, fs.ErrNotExist)) {
		return file, nil
	}
	if err != nil {
		return file, hint(fmt.Errorf("read the configuration file: %w", err), "check PIPECTL_CONFIG, or unset it")
	}
	return file, file.parse(data)
}

// usualSettings returns the default file; "" without a home directory.
func usualSettings() string {
	dir := configDir()
	if dir == "" {
		return ""
	}
	return filepath.Join(dir, "config.yaml")
}

// configDir returns the directory of settings and sign-ins, $XDG_CONFIG_HOME/pipectl, or below
// ~/.config; "" without a home directory.
func configDir() string {
	dir := os.Getenv("XDG_CONFIG_HOME")
	if dir == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return ""
		}
		dir = filepath.Join(home, ".config")
	}
	return filepath.Join(dir, "pipectl")
}

// parse decodes a YAML mapping whose keys are named like the flags. Other keys are errors with
// the line.
func (f *settingsFile) parse(data []byte) error {
	var known []string
	for _, s := range settings() {
		if !s.only {
			known = append(known, s.flag)
		}
	}
	bad := func(line int, format string, args ...any) error {
		return hint(fmt.Errorf("%s:%d: %s", f.path, line, fmt.Sprintf(format, args...)), "its keys are: %s", strings.Join(known, ", "))
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(data, &doc); err != nil {
		return hint(fmt.Errorf("read %s: %w", f.path, err), "its keys are: %s", strings.Join(known, ", "))
	}
	if len(doc.Content) == 0 {
		return nil // empty, or comments only
	}
	top := doc.Content[0]
	if top.Kind != yaml.MappingNode {
		return bad(top.Line, "want keys with values")
	}
	for i := 0; i+1 < len(top.Content); i += 2 {
		key, value := top.Content[i], top.Content[i+1]
		_, twice := f.values[key.Value]
		switch {
		case !slices.Contains(known, key.Value):
			return bad(key.Line, "unknown key %q", key.Value)
		case twice:
			return bad(key.Line, "key %q occurs twice", key.Value)
		case value.Kind != yaml.ScalarNode || value.Tag == "!!null":
			return bad(value.Line, "key %q has no single value", key.Value)
		}
		f.values[key.Value] = value.Value
	}
	f.resolvePaths()
	return nil
}

// resolvePaths makes relative paths relative to the file.
func (f *settingsFile) resolvePaths() {
	for _, s := range settings() {
		if v := f.values[s.flag]; s.path && v != "" && !filepath.IsAbs(v) {
			f.values[s.flag] = filepath.Join(filepath.Dir(f.path), v)
		}
	}
}

// checkPrivate rejects a key file that other users can read. A missing file is reported
// when it is read.
func checkPrivate(path string) error {
	info, err := os.Stat(path)
	if err == nil && info.Mode().Perm()&0o077 != 0 {
		return hint(fmt.Errorf("the API key file %s can be read by others than its owner: its mode is %#o", path, info.Mode().Perm()),
			"chmod 600 %s", path)
	}
	return nil
}
