package importer

import (
	"path"
	"regexp"
	"strings"
)

// argo converts an Application of Argo CD.
func (u *unit) argo() {
	s := u.root.get("spec")
	u.spec.Name = u.document.name()
	u.argoMetadata()
	u.argoDestination(s.get("destination"))
	u.argoPolicy(s.get("syncPolicy"))
	yield := false
	for _, o := range s.get("syncPolicy", "syncOptions").items() {
		yield = yield || o.text() == "RespectIgnoreDifferences=true"
	}
	for _, d := range s.get("ignoreDifferences").items() {
		u.argoIgnore(d, yield)
	}
	u.argoInfo(s.get("info"))
	if project := s.get("project"); project.text() != "" && project.text() != "default" {
		project.agent("what project %s restricts is spec.tenancy of the agent: give the applications of this directory their repositories, clusters, namespaces and kinds", project.text())
	}
	s.get("revisionHistoryLimit").lost("deployments are kept by spec.retention of the agent")
	u.argoSources(s)
}

// argoMetadata converts labels and annotations.
func (u *unit) argoMetadata() {
	labels := u.root.get("metadata", "labels")
	for _, key := range labels.keys() {
		value := labels.get(key).text()
		if key == "app.kubernetes.io/instance" || strings.HasPrefix(key, "argocd.argoproj.io/") {
			continue // of the tool that made the Application
		}
		u.spec.Labels = merged(u.spec.Labels, map[string]string{key: value})
	}
	annotations := u.root.get("metadata", "annotations")
	for _, key := range annotations.keys() {
		f := annotations.get(key)
		prefix, _, _ := strings.Cut(key, "/")
		switch {
		case key == "argocd.argoproj.io/manifest-generate-paths":
			u.argoPaths(f.text())
		case key == "argocd.argoproj.io/sync-wave":
			f.lost("applications have no order among themselves: postSync.chain of one deploys others after it")
		case strings.HasPrefix(prefix, "notifications.argoproj.io"):
			f.agent("subscriptions are routes of spec.notifications of the agent")
		case prefix == "argocd-image-updater.argoproj.io":
			f.lost("registries are not scanned: write eventWatcher, and register an event in the CI that pushes the image (pipectl event register)")
		case prefix == "link.argocd.argoproj.io" && u.spec.EnvironmentURL == "" && isURL(f.text()):
			u.spec.EnvironmentURL = f.text()
		case prefix == "kubectl.kubernetes.io", prefix == "argocd.argoproj.io":
			f.none() // records of the last apply, of a refresh and of tracking
		default:
			f.lost("applications have no annotations; labels select them")
		}
	}
}

// argoPaths converts the paths whose commits concern the Application.
func (u *unit) argoPaths(paths string) {
	own := u.root.get("spec", "source", "path").text()
	for p := range strings.SplitSeq(paths, ";") {
		if !strings.HasPrefix(p, "/") {
			p = path.Join(own, p)
		}
		if dir, ok := inside(p); ok && dir != path.Clean(own) && p != "" {
			u.spec.watch(dir)
		}
	}
}

func isURL(text string) bool {
	return strings.HasPrefix(text, "https://") || strings.HasPrefix(text, "http://")
}

// argoInfo uses the first address as that of the environment.
func (u *unit) argoInfo(info field) {
	for _, i := range info.items() {
		value := i.get("value")
		i.get("name").none()
		if isURL(value.text()) && u.spec.EnvironmentURL == "" {
			u.spec.EnvironmentURL = value.text()
			continue
		}
		value.lost("applications have a description and one environmentURL, and no further information")
	}
}

// argoDestination converts the cluster and the namespace.
func (u *unit) argoDestination(d field) {
	u.spec.Input.Namespace = d.get("namespace").text()
	for _, f := range []field{d.get("server"), d.get("name")} {
		if cluster := f.text(); cluster != "" {
			u.provider(f, cluster, cluster == "in-cluster" || cluster == "https://kubernetes.default.svc")
		}
	}
}

// provider sets the platform provider for a cluster. The other tool's own cluster needs none.
func (u *unit) provider(f field, cluster string, own bool) {
	name, known := u.Providers[cluster]
	switch {
	case known:
		u.spec.PlatformProvider = name
	case !own:
		f.block("name the platform provider of this cluster with --provider %s=NAME", cluster)
	}
}

// argoPolicy converts the sync policy.
func (u *unit) argoPolicy(p field) {
	automated := p.get("automated")
	enabled := automated.get("enabled")
	if !automated.exists() || enabled.exists() && !enabled.flag() {
		u.spec.commit().Disabled = true
	}
	prune := automated.get("prune").flag()
	if automated.get("selfHeal").flag() {
		u.spec.heal()
	}
	if empty := automated.get("allowEmpty"); empty.flag() {
		empty.lost("an application without objects is refused, so that a mistake does not delete everything")
	}
	for _, o := range p.get("syncOptions").items() {
		key, value, _ := strings.Cut(o.text(), "=")
		on := value == "true"
		switch key {
		case "CreateNamespace":
			u.spec.Input.AutoCreateNamespace = on && u.spec.Input.Namespace != ""
		case "ServerSideApply", "PruneLast", "ApplyOutOfSyncOnly", "RespectIgnoreDifferences", "SkipDryRunOnMissingResource", "FailOnSharedResource", "ClientSideApplyMigration", "DisableClientSideApplyMigration":
			// as the agent does it, or read with ignoreDifferences
		case "Prune":
			if !on {
				prune = false
			}
		case "Validate":
			if !on {
				o.lost("the API server validates every object")
			}
		case "Replace":
			if on {
				o.lost("write the annotation pipecd.dev/sync-by-replace: enabled on the objects that need it")
			}
		case "Force":
			if on {
				o.lost("write the annotation pipecd.dev/force-sync-by-replace: enabled on the objects that need it")
			}
		case "PrunePropagationPolicy":
			if value != "foreground" {
				o.lost("pruned objects are deleted with what they own")
			}
		default:
			o.lost("not known to the import: compare what it does by hand")
		}
	}
	if prune {
		u.spec.QuickSync = &quickSync{true}
	}
	p.get("retry").lost("a failed deployment is not repeated: the next commit, drift with trigger.onOutOfSync, or pipectl application sync deploys again. Requests that fail for a moment are repeated by the stage")
	p.get("managedNamespaceMetadata").lost("write a manifest of the Namespace with these labels and annotations")
}

// argoIgnore converts an entry of ignoreDifferences.
func (u *unit) argoIgnore(d field, yield bool) {
	rule := ignoreRule{Kind: d.get("kind").text(), Name: d.get("name").text()}
	if rule.Kind == "*" {
		rule.Kind = ""
	}
	if yield {
		rule.Mode = "yield"
	}
	d.get("group").none() // the kind selects
	if ns := d.get("namespace"); ns.text() != "" && ns.text() != u.spec.Input.Namespace {
		ns.lost("a rule has no namespace: it holds for the objects of that kind and name in all namespaces of the application")
	}
	for _, p := range d.get("jsonPointers").items() {
		u.pointer(&rule, p)
	}
	for _, p := range d.get("jqPathExpressions").items() {
		if pointer, ok := jqPointer(p.text()); ok {
			rule.Paths = append(rule.Paths, pointer)
		} else {
			p.lost("expressions are not evaluated: name the field in driftDetection.ignoreRules, such as /spec/template/spec/containers[name=web]/image")
		}
	}
	missed := len(d.get("jsonPointers").items())+len(d.get("jqPathExpressions").items()) > 0 && len(rule.Paths) == 0
	managers := d.get("managedFieldsManagers").texts()
	if len(managers) > 0 && len(rule.Paths) > 0 {
		// Argo CD ignores the union, a rule of the agent the intersection.
		u.spec.ignore(ignoreRule{Kind: rule.Kind, Name: rule.Name, Managers: managers, Mode: rule.Mode})
		managers = nil
	}
	if rule.Managers = managers; len(rule.Paths) > 0 || len(managers) > 0 && !missed {
		u.spec.ignore(rule)
	} else if len(managers) > 0 {
		u.spec.ignore(ignoreRule{Kind: rule.Kind, Name: rule.Name, Managers: managers, Mode: rule.Mode})
	}
}

// keyed are lists of pods whose items have keys, which JSON pointers of the agent use in place
// of an index.
var keyed = regexp.MustCompile(`/(containers|initContainers|volumes|env|ports|volumeMounts|conditions|hostAliases|imagePullSecrets)/(\d+|-)(/|$)`)

// pointer adds a JSON pointer to a rule.
func (u *unit) pointer(rule *ignoreRule, p field) {
	text := p.text()
	switch {
	case !strings.HasPrefix(text, "/") || strings.HasSuffix(text, "/"):
		p.lost("expected a JSON pointer such as /spec/replicas")
	case keyed.MatchString(text):
		p.lost("an item of this list is named by its key, not by its index: write the rule with /spec/template/spec/containers[name=…]/…")
	case strings.ContainsAny(text, "[]"):
		p.lost("a key with brackets cannot be named")
	default:
		rule.Paths = append(rule.Paths, text)
	}
}

var (
	jqKey  = regexp.MustCompile(`^\.(?:([A-Za-z_][A-Za-z0-9_]*)|"([^"\\]+)")`)
	jqKeyB = regexp.MustCompile(`^\.?\["([^"\\]+)"\]`)
	jqItem = regexp.MustCompile(`^\[\]\??\s*\|\s*select\(\s*\.([A-Za-z]+)\s*==\s*"([^"\\,\]\[=]+)"\s*\)\s*(?:\|\s*)?`)
)

// jqPointer converts a jq expression that is a path of keys, with items selected by one key.
func jqPointer(expression string) (pointer string, ok bool) {
	escape := strings.NewReplacer("~", "~0", "/", "~1")
	rest := strings.TrimSpace(expression)
	for rest != "" {
		if m := jqItem.FindStringSubmatch(rest); m != nil && pointer != "" {
			pointer += "[" + m[1] + "=" + escape.Replace(m[2]) + "]"
			rest = rest[len(m[0]):]
			continue
		}
		m := jqKey.FindStringSubmatch(rest)
		if m == nil {
			if b := jqKeyB.FindStringSubmatch(rest); b != nil {
				m = []string{b[0], b[1], ""}
			}
		}
		if m == nil {
			return "", false
		}
		key := m[1] + m[2]
		if strings.ContainsAny(key, "[]") {
			return "", false
		}
		pointer += "/" + escape.Replace(key)
		rest = rest[len(m[0]):]
	}
	return pointer, pointer != ""
}
