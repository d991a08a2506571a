package config

import (
	"bytes"
	"encoding"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"gopkg.in/yaml.v3"

	"github.com/c785c783/piped/piped/config/kubernetes"
	"github.com/c785c783/piped/piped/config/strict"
	"github.com/c785c783/piped/piped/deploy"
)

const (
	hidden        = "[redacted]" // replaces a secret
	originDefault = "default"    // of a value that is not configured
)

// Effective returns the configuration as YAML, with defaults and without secrets. A comment
// marks what the file does not contain. What is empty is left out.
func (p *Piped) Effective() string {
	spec := p.spec()
	return written(KindPiped, encoder{origin: p.origin}.value("", reflect.ValueOf(&spec).Elem()))
}

// origin returns where the value at a path comes from; "" for the file. No list has a default:
// one that the file does not contain was written in an older form.
func (p *Piped) origin(path string) string {
	list, _, isItem := strings.Cut(path, "[")
	switch {
	case p.InFile[path]:
		return ""
	case isItem && !p.InFile[list]:
		return "older form"
	}
	return originDefault
}

// spec returns the spec that says all of the configuration. Providers and plugins have one form.
func (p *Piped) spec() pipedSpec {
	s := pipedSpec{
		ProjectID: p.ProjectID, PipedID: p.PipedID, Name: p.Name, DataDir: p.DataDir, Store: p.Store, API: p.API, Web: p.Web,
		SyncInterval: p.SyncInterval, Git: p.Git, Repositories: p.Repositories, Webhooks: p.Webhooks, GitHosts: p.GitHosts,
		Limits: p.Limits, Tenancy: p.Tenancy, Access: p.Access, Scripts: p.Scripts, Adopt: p.Adopt,
		Charts: p.Charts, ChartRepositories: p.ChartRepositories, ChartRegistries: p.ChartRegistries, AnalysisProviders: p.AnalysisProviders,
		Notifications: p.Notifications, RolloutExport: p.RolloutExport, SecretManagement: p.SecretManagement, SOPS: p.SOPS,
		EventWatcher: p.EventWatcher, PlanPreview: p.PlanPreview, Previews: p.Previews, Retention: p.Retention, Telemetry: p.Telemetry, Debug: p.Debug, AppSelector: p.AppSelector,
	}
	for _, provider := range p.Providers {
		s.Providers = append(s.Providers, providerSpec{Name: provider.Name, Type: providerType(provider.Type), Labels: provider.Labels, Config: provider.Config})
	}
	return s
}

// EffectiveApplication returns the configuration of an application as YAML, with defaults,
// filled-in templates, and without secrets. A comment marks what the file does not contain.
// known is the application as it is stored. Errors are those of ParseApplication.
func (ks Kinds) EffectiveApplication(name string, data []byte, known deploy.Application, templates *AnalysisTemplates) (text string, app *Application, err error) {
	if app, err = ks.ParseApplication(name, data); err != nil {
		return "", nil, err
	}
	whole, d, err := ks.readApplication(name, data) // ParseApplication keeps no document
	if err != nil {
		return "", nil, &deploy.Error{Kind: deploy.Invalid, Err: err}
	}
	origins := origins{d: d, of: map[string]string{}}
	origins.fill(whole, known)
	origins.resolve(whole, templates)
	return written(d.Kind, encoder{origin: origins.comment}.value("", reflect.ValueOf(whole).Elem())), app, nil
}

// origins says where values come from that a file does not contain.
type origins struct {
	d  *strict.Document
	of map[string]string // by path; that of a list includes all below
}

// fill sets what is decided outside of the file.
func (o origins) fill(app *Application, known deploy.Application) {
	if app.Name == "" {
		app.Name, o.of["name"] = known.Name, "registration or directory"
	}
	if app.PlatformProvider == "" {
		app.PlatformProvider, o.of["platformProvider"] = known.Provider, "configuration of the agent"
	}
	rollback := app.AutoRollback()
	app.Planner.AutoRollback = &rollback
	if field, written := app.Platform.RollbackSwitch(); written != nil {
		o.of["planner.autoRollback"] = field
	}
	if spec, ok := app.Platform.(*kubernetes.Spec); ok && spec.ConfigPropagation == nil {
		propagation := kubernetes.DefaultConfigPropagation()
		spec.ConfigPropagation = &propagation
	}
}

// resolve fills the analyses with their templates. An analysis that cannot be resolved stays as
// it is.
func (o origins) resolve(app *Application, templates *AnalysisTemplates) {
	if app.Pipeline == nil || templates == nil {
		return
	}
	for i, s := range app.Pipeline.Stages {
		at := stageAt(i) + ".with"
		switch with := s.With.(type) {
		case *AnalysisOptions:
			if checks, err := templates.Resolve(with.Options); err == nil {
				with.Checks = checks
				o.templated(at)
			}
		case *TrafficRoutingOptions:
			if with.Analysis == nil {
				continue
			}
			if checks, err := templates.Resolve(*with.Analysis); err == nil {
				with.Analysis.Checks = checks
				o.templated(at + ".analysis")
			}
		}
	}
}

// templated records that the checks of an analysis can come from templates.
func (o origins) templated(at string) {
	for _, list := range []string{".metrics", ".logs", ".https"} {
		o.of[at+list] = "template or default"
	}
}

// comment returns where the value at a path comes from; "" for the file.
func (o origins) comment(path string) string {
	if o.d.Has(path) {
		return ""
	}
	for at, origin := range o.of {
		if path == at || strings.HasPrefix(path, at+"[") {
			return origin
		}
	}
	return originDefault
}

// written returns the text of a file with a spec.
func written(kind string, spec *yaml.Node) string {
	if spec == nil {
		spec = &yaml.Node{Kind: yaml.MappingNode}
	}
	var out bytes.Buffer
	encode := yaml.NewEncoder(&out)
	encode.SetIndent(2)
	root := &yaml.Node{Kind: yaml.MappingNode, Content: []*yaml.Node{scalar("apiVersion"), scalar(APIVersion), scalar("kind"), scalar(kind), scalar("spec"), spec}}
	if err := encode.Encode(root); err != nil {
		return "# cannot be written as YAML: " + err.Error() + "\n"
	}
	return out.String()
}

// encoder writes the types that package strict reads as YAML nodes. It redacts secrets.
type encoder struct {
	origin func(path string) string // of a scalar
}

// value returns the node of a value, nil for an empty one.
func (e encoder) value(path string, v reflect.Value) *yaml.Node {
	if v.Type() == reflect.TypeFor[time.Duration]() && v.IsZero() && strings.HasSuffix(path, ".timeout") {
		return nil // no limit, which is not written
	}
	if text, ok := textOf(v); ok {
		return e.text(path, shownText(path, text))
	}
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if v.IsNil() {
			return nil
		}
		return e.value(path, v.Elem())
	case reflect.Struct:
		node := &yaml.Node{Kind: yaml.MappingNode}
		e.fields(path, v, node)
		return filled(node)
	case reflect.Map:
		return e.mapping(path, v)
	case reflect.Slice:
		node := &yaml.Node{Kind: yaml.SequenceNode}
		for i := range v.Len() {
			item := e.value(fmt.Sprintf("%s[%d]", path, i), v.Index(i))
			if item == nil {
				item = &yaml.Node{Kind: yaml.MappingNode, Style: yaml.FlowStyle}
			}
			node.Content = append(node.Content, item)
		}
		return filled(node)
	case reflect.String:
		return e.text(path, shownText(path, v.String()))
	}
	return e.comment(path, &yaml.Node{Kind: yaml.ScalarNode, Value: fmt.Sprint(v.Interface())})
}

func (e encoder) fields(path string, v reflect.Value, into *yaml.Node) {
	for i := range v.NumField() {
		key, option, _ := strings.Cut(v.Type().Field(i).Tag.Get("yaml"), ",")
		switch {
		case option == "inline":
			e.fields(path, strict.Inlined(v.Field(i)), into)
		case key != "" && key != "-":
			if node := e.value(below(path, key), v.Field(i)); node != nil {
				into.Content = append(into.Content, scalar(key), node)
			}
		}
	}
	e.hideValue(path, into)
}

// hideValue redacts the field value of a struct if the name or the path beside it is that of a
// secret.
func (e encoder) hideValue(path string, of *yaml.Node) {
	fields := map[string]*yaml.Node{}
	for i := 0; i+1 < len(of.Content); i += 2 {
		if of.Content[i+1].Kind == yaml.ScalarNode {
			fields[of.Content[i].Value] = of.Content[i+1]
		}
	}
	value, names := fields["value"], []any{}
	for _, name := range []*yaml.Node{fields["name"], fields["path"]} {
		if name != nil {
			names = append(names, name.Value)
		}
	}
	if value != nil && namesSecret(names...) {
		*value = *e.text(below(path, "value"), hidden)
	}
}

func (e encoder) mapping(path string, v reflect.Value) *yaml.Node {
	keys := map[string]reflect.Value{}
	for _, k := range v.MapKeys() {
		keys[k.String()] = v.MapIndex(k)
	}
	node := &yaml.Node{Kind: yaml.MappingNode}
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		at := below(path, key)
		value := e.value(at, keys[key])
		if value != nil && (secretName.MatchString(key) || strings.HasSuffix(path, "encryptedSecrets")) && value.Kind == yaml.ScalarNode {
			value = e.text(at, hidden)
		}
		if value == nil {
			value = scalar("")
		}
		node.Content = append(node.Content, scalar(key), value)
	}
	return filled(node)
}

// text returns the node of a text, nil for an empty one.
func (e encoder) text(path, text string) *yaml.Node {
	if text == "" {
		return nil
	}
	return e.comment(path, scalar(text))
}

func (e encoder) comment(path string, node *yaml.Node) *yaml.Node {
	node.LineComment = e.origin(path)
	return node
}

// textOf returns the text of a type that is read from a text; a secret is redacted.
func textOf(v reflect.Value) (text string, ok bool) {
	if !v.CanInterface() {
		return "", false
	}
	switch known := v.Interface().(type) {
	case strict.Secret:
		if known.IsEmpty() {
			return "", true
		}
		return hidden, true
	case time.Duration:
		return shortened(known), true
	case strict.Duration:
		return shortened(time.Duration(known)), true
	case encoding.TextMarshaler:
		text, err := known.MarshalText()
		return string(text), err == nil
	case Schedule, TimeZone, Regexp, ServiceAccount:
		if v.IsZero() && v.Type() != reflect.TypeFor[TimeZone]() {
			return "", true
		}
		return fmt.Sprint(known), true
	}
	return "", false
}

// shortened writes a duration as people do: 6h rather than 6h0m0s.
func shortened(d time.Duration) string {
	text := d.String()
	for _, zero := range []string{"m0s", "h0m"} {
		if strings.HasSuffix(text, zero) {
			text = text[:len(text)-2]
		}
	}
	return text
}

const (
	secretWord = `[\w.-]*(?:token|secret|pass(?:w|phrase)?|pwd|credential|authorization|api[-_]?key|access[-_]?key|private[-_]?key|cookie)[\w.-]*`
	secretText = `("[^"\n]*"|'[^'\n]*'|[^\s"';]+)`
)

var (
	// secretName matches names of environment variables, headers and values that hold secrets.
	secretName = regexp.MustCompile(`(?i)(token|secret|pass(w|phrase|$|[-_.])|pwd|credential|auth|api[-_.]?key|access[-_.]?key|private|cookie|signature|session|dsn|(^|[-_.])key$)`)
	// userInfo is the user and password of a URL within a text, which may hold blanks.
	userInfo = regexp.MustCompile(`(\w[\w+.-]*://)[^/?#\s"'` + "`" + `]*@`)
	// queryValue is a value of a URL's query within a text.
	queryValue = regexp.MustCompile(`(\w[\w+.-]*://[^\s"'` + "`" + `?]*\?)[^\s"'` + "`" + `]+`)
	// assigned is a secret that a text assigns, such as that of a connection.
	assigned = regexp.MustCompile(`(?i)(` + secretWord + `["']?\s*=\s*)` + secretText)
	// inScript is a secret that a script sets, sends as a header, or passes as an argument.
	inScript = []*regexp.Regexp{
		regexp.MustCompile(`(?i)(` + secretWord + `["']?\s*[:=]\s*)(?:(?:bearer|basic|token)\s+)?` + secretText),
		regexp.MustCompile(`(?i)(--?` + secretWord + `[ \t]+)` + secretText),
		regexp.MustCompile(`((?:^|\s)(?:-u|--user)[ \t=]*)("[^"\n]*:[^"\n]*"|'[^'\n]*:[^'\n]*'|[^\s"':]+:\S+)`),
	}
	listIndex = regexp.MustCompile(`\[\d+\]`)
)

// shownText returns a text without the secrets that fields of that path can have.
func shownText(path, text string) string {
	at := listIndex.ReplaceAllString(path, "[]")
	switch {
	case text == "":
		return ""
	case strings.HasSuffix(at, ".headers[].value"):
		return hidden
	case strings.HasSuffix(at, ".webhook.url"): // the path is often the secret
		return hostOf(text)
	}
	text = userInfo.ReplaceAllString(text, "${1}"+hidden+"@")
	text = queryValue.ReplaceAllString(text, "${1}"+hidden)
	if !strings.HasSuffix(at, ".run") && !strings.HasSuffix(at, ".onRollback") {
		return assigned.ReplaceAllString(text, "${1}"+hidden)
	}
	for _, secret := range inScript {
		text = secret.ReplaceAllString(text, "${1}"+hidden)
	}
	return text
}

// mayHoldSecrets matches all options that ShownOptions changes, and few others: most stages have
// none, and their options are returned with every deployment.
var mayHoldSecrets = regexp.MustCompile(`(?i)token|secret|pass|pwd|credential|auth|key|private|cookie|signature|session|dsn|://|headers|webhook|-u|\\`)

// ShownOptions returns the options of a stage, as JSON, without the secrets that they can have.
func ShownOptions(options []byte) string {
	if !mayHoldSecrets.Match(options) {
		return string(options)
	}
	return redactedOptions(options)
}

func redactedOptions(options []byte) string {
	var value any
	if err := json.Unmarshal(options, &value); err != nil {
		return string(options)
	}
	shown := shownValue("", value)
	if reflect.DeepEqual(shown, value) {
		return string(options)
	}
	out, err := json.Marshal(shown)
	if err != nil { // what JSON became can be JSON again
		return hidden
	}
	return string(out)
}

// shownValue returns a copy of a decoded JSON value without secrets.
func shownValue(path string, value any) any {
	switch v := value.(type) {
	case string:
		return shownText(path, v)
	case []any:
		out := make([]any, len(v))
		for i, item := range v {
			out[i] = shownValue(fmt.Sprintf("%s[%d]", path, i), item)
		}
		return out
	case map[string]any:
		out := map[string]any{}
		for key, item := range v {
			out[key] = shownValue(path+"."+key, item)
			if _, ok := item.(string); ok && (key != "key" && secretName.MatchString(key) || key == "value" && namesSecret(v["name"], v["path"])) {
				out[key] = hidden
			}
		}
		return out
	}
	return value
}

// namesSecret reports whether one of the names that stand beside a value is that of a secret.
func namesSecret(names ...any) bool {
	return slices.ContainsFunc(names, func(name any) bool {
		text, ok := name.(string)
		return ok && secretName.MatchString(text)
	})
}

// hostOf returns a URL without what follows its host.
func hostOf(text string) string {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" {
		return hidden
	}
	return u.Scheme + "://" + u.Host + "/" + hidden
}

func filled(node *yaml.Node) *yaml.Node {
	if len(node.Content) == 0 {
		return nil
	}
	return node
}

// scalar returns the node of a text, quoted if it would be read as another type.
func scalar(text string) *yaml.Node {
	node := &yaml.Node{}
	node.SetString(strings.ToValidUTF8(text, "\uFFFD"))
	if _, err := strconv.ParseFloat(text, 64); err == nil {
		node.Style = yaml.DoubleQuotedStyle
	}
	return node
}

func below(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}
