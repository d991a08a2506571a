package app

import (
	"fmt"
	"maps"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"

	"github.com/c785c783/piped/piped/cluster/clustertest"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/git/gittest"
	"github.com/c785c783/piped/piped/manifest"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// notTaken are the samples, or applications of samples, that no test cluster carries, by the
// start of their paths, with the reason.
var notTaken = map[string]string{
	"argocd/another-repository":                     "nothing is imported: the source is another repository",
	"argocd/app-of-apps":                            "nothing is imported: it declares Applications",
	"argocd/helm-build-variables":                   "nothing is imported: only Argo CD fills its variables in",
	"argocd/helm-registry":                          "the chart is in a remote registry",
	"argocd/helm-repository":                        "the chart is in a remote chart repository",
	"argocd/helm-repository-password":               "nothing is imported: the address has a password",
	"argocd/hooks":                                  "nothing is imported: it has hooks of Argo CD",
	"argocd/jsonnet":                                "nothing is imported: it is Jsonnet",
	"argocd/namespaces-mixed":                       "nothing is imported: no setting fits its namespaces",
	"argocd/plugin":                                 "nothing is imported: a plugin renders it",
	"argocd/provider-unnamed":                       "nothing is imported: its cluster has no name here",
	"argocd/set-git":                                "nothing is imported: its generator reads the repository",
	"argocd/sources-values-in-git":                  "the chart is in a remote chart repository",
	"flux/cluster-of-kustomizations":                "nothing is imported: it declares Kustomizations",
	"flux/oci-manifests":                            "nothing is imported: the manifests are in a remote registry",
	"flux/prefix-twice":                             "nothing is imported: no overlay replaces a prefix",
	"flux/release":                                  "the chart is in a remote chart repository",
	"flux/release-git-replaced-values":              "nothing is imported: no setting leaves the chart's values out",
	"flux/release-helm-chart":                       "the chart is in a remote chart repository",
	"flux/release-oci-repository":                   "the chart is in a remote registry",
	"flux/release-post-rendered":                    "nothing is imported: its objects are changed after the chart is rendered",
	"flux/release-registry":                         "the chart is in a remote registry",
	"flux/release-source-not-given":                 "nothing is imported: the chart repository is not known",
	"flux/release-suspended":                        "the chart is in a remote registry",
	"flux/release-values-from":                      "the chart is in a remote chart repository",
	"flux/release-values-of-secret":                 "nothing is imported: its values are secret",
	"flux/releases-of-one-name/piped/store":         "the chart is in a remote chart repository",
	"flux/releases-of-one-name/piped/green-store":   "the chart is in a remote chart repository",
	"flux/releases-of-one-name/piped/green-store-2": "the chart is in a remote chart repository",
	"flux/variables-escaped":                        "nothing is imported: only Flux replaces its variables",
	"flux/variables-used":                           "nothing is imported: only Flux fills its variables in",
}

// TestImportedApplicationsAreTakenOver: what Argo CD and Flux have applied of the samples that a
// test cluster carries is taken over by an agent that reads the imported configurations: each
// application is synced, no pod restarts, nothing is rolled out, created or deleted, and nothing
// changes but marks of ownership. A stage's log warns of the other tool.
func TestImportedApplicationsAreTakenOver(t *testing.T) {
	t.Parallel()
	cluster := clustertest.Shared(t)
	define(t, cluster, toolKinds...)
	charts := newRepo(t)
	served := charts.HTTP(t, gittest.HTTPOptions{})
	land := newImportLand(t, cluster, served.URL, charts)
	program, repo, all := buildAgent(t), newRepo(t), map[string]string{}
	for _, name := range sampleNames(t) {
		if s := land.sample(t, name); s != nil {
			maps.Copy(all, s.prepare(t, program))
		}
	}
	land.awaitQuiet(t)
	before := land.everything(t)
	commit := repo.Push(t, "import", all)
	// Samples that name a cluster name this one; to all others the only provider is given.
	providers := fmt.Sprintf("[{name: eu, type: KUBERNETES, config: {kubeConfigPath: %s}}]", cluster.Kubeconfig())
	agent := runAgent(t, settings{dataDir: t.TempDir(), remote: repo.Dir, providers: providers, more: fmt.Sprintf("  git: {remoteHosts: [%q]}\n", allowedHost(served.URL))})
	for _, s := range land.samples {
		s.take(t, agent, commit)
	}
	land.awaitQuiet(t)
	after := land.everything(t)
	for _, s := range land.samples {
		t.Run(s.name, func(t *testing.T) { s.compare(t, s.own(before), s.own(after)) })
	}
}

// sampleNames returns the samples of both tools.
func sampleNames(t *testing.T) []string {
	t.Helper()
	var names []string
	for tool, least := range map[string]int{"argocd": 20, "flux": 20} {
		paths, err := filepath.Glob("../importer/testdata/" + tool + "/*.txtar")
		if err != nil || len(paths) < least {
			t.Fatalf("%d samples of %s, %v; want %d", len(paths), tool, err, least)
		}
		for _, p := range paths {
			names = append(names, tool+"/"+strings.TrimSuffix(filepath.Base(p), ".txtar"))
		}
	}
	for listed := range notTaken {
		if !slices.ContainsFunc(names, func(name string) bool { return listed == name || strings.HasPrefix(listed, name+"/") }) {
			t.Errorf("%s is listed, but there is no such sample", listed)
		}
	}
	slices.Sort(names)
	return names
}

// imported is a sample of the importer's testdata whose objects are live.
type imported struct {
	*importLand
	name       string
	spaces     map[string]string // namespaces of the test by those of the sample
	archive    *txtar.Archive
	serverSide bool              // the other tool is asked for a server-side apply
	live       []manifest.Object // as the other tool has them
	configs    []string          // of the expected applications
	manual     map[string]bool   // of them, those that commits do not deploy
}

// spaceNames are the namespaces of the samples. Those of the other tools, and of samples with one
// namespace, are one namespace of the test.
var spaceNames = regexp.MustCompile(`(amespace: |/Namespace:[a-z0-9-]+/|kind: Namespace[,\n] ?metadata: \{name: |:)(argocd|flux-system|shop|cache|web|api|monitoring|red|green|blue)(/[a-z-]|["},\n])`)

// sample reads a sample, nil for one that is listed.
func (l *importLand) sample(t *testing.T, name string) *imported {
	t.Helper()
	archive, err := txtar.ParseFile("../importer/testdata/" + name + ".txtar")
	if err != nil {
		t.Fatal(err)
	}
	s := &imported{importLand: l, name: name, archive: archive, spaces: map[string]string{}, manual: map[string]bool{}}
	for _, f := range archive.Files {
		if config, ok := strings.CutPrefix(f.Name, "want/"); ok && strings.HasSuffix(config, ".pipecd.yaml") && notTaken[name+"/"+path.Dir(config)] == "" {
			s.configs = append(s.configs, config)
			s.manual[config] = strings.Contains(string(f.Data), "onCommit: {disabled: true}")
		}
	}
	live := slices.ContainsFunc(archive.Files, func(f txtar.File) bool { return strings.HasPrefix(f.Name, "live/") })
	if listed := notTaken[name] != ""; listed || !live {
		if listed == live {
			t.Errorf("%s: listed as not taken over: %v; live objects: %v; it must have one of both", name, listed, live)
		}
		return nil
	}
	ns := l.cluster.Namespace(t)
	for _, one := range []string{"argocd", "flux-system", "shop", "cache"} {
		s.spaces[one] = ns
	}
	for _, f := range archive.Files {
		s.serverSide = s.serverSide || !strings.Contains(f.Name, "/") && strings.Contains(string(f.Data), serverSideOption)
		for _, found := range spaceNames.FindAllStringSubmatch(string(f.Data), -1) {
			if s.spaces[found[2]] == "" {
				s.spaces[found[2]] = l.cluster.Namespace(t)
			}
		}
	}
	l.samples = append(l.samples, s)
	return s
}

// here replaces what a sample names by what the test has: namespaces, and the repository of charts.
func (s *imported) here(text string) string {
	text = strings.ReplaceAll(text, "https://git.example.com/team/charts", s.charts)
	for range 2 { // a name's end is the start of the next match
		text = spaceNames.ReplaceAllStringFunc(text, func(found string) string {
			m := spaceNames.FindStringSubmatch(found)
			return m[1] + s.spaces[m[2]] + m[3]
		})
	}
	return text
}

// prepare applies what is live as the other tool does, imports the sample, and returns the files of
// its checkout below a directory of its own.
func (s *imported) prepare(t *testing.T, program string) map[string]string {
	t.Helper()
	dir, documents := t.TempDir(), ""
	args, inputs, charts := []string{"--repo-dir", filepath.Join(dir, "repo")}, map[string]string{}, map[string]string{}
	for _, f := range s.archive.Files {
		text := s.here(string(f.Data))
		place, name, _ := strings.Cut(f.Name, "/")
		switch {
		case place == "live":
			s.applyAs(t, name, text)
		case place == "charts":
			charts[name] = text
		case place == "repo":
			inputs[f.Name] = text
		case place == "args":
			args = append(args, strings.Fields(text)...)
		case place != "want" && place != "findings":
			inputs[f.Name] = text
			args = append(args, filepath.Join(dir, f.Name))
			documents += "---\n" + text
		}
	}
	s.declare(t, documents)
	if len(charts) > 0 {
		s.chartRepo.PushOn(t, "v1.4.0", s.name, charts)
	}
	writeFiles(t, dir, inputs)
	runImport(t, program, args...)
	out := map[string]string{}
	for name, text := range filesBelow(t, filepath.Join(dir, "repo")) {
		if !s.leftOut(path.Dir(name)) && !strings.HasPrefix(name, ".git/") {
			out[s.name+"/"+name] = text
		}
	}
	return out
}

// namedAfter are the starts of file names that are namespaces, for applications of one name.
var namedAfter = regexp.MustCompile(`(^|/)(red|green|blue)-`)

// path returns the name in the test of a file or directory of the sample.
func (s *imported) path(name string) string {
	return namedAfter.ReplaceAllStringFunc(name, func(found string) string {
		m := namedAfter.FindStringSubmatch(found)
		return m[1] + s.spaces[m[2]] + "-"
	})
}

// leftOut reports whether the applications in a directory are listed as not taken over.
func (s *imported) leftOut(dir string) bool {
	for listed := range notTaken {
		if rest, ok := strings.CutPrefix(listed, s.name+"/"); ok && s.path(rest) == dir {
			return true
		}
	}
	return false
}

// id returns the ID of the application of a configuration.
func (s *imported) id(config string) string {
	config = s.path(config)
	return deploy.ApplicationID(deploy.GitPath{RepoID: "apps", Dir: path.Join(s.name, path.Dir(config)), ConfigFile: path.Base(config)})
}

var toolWarning = regexp.MustCompile(`warning: (.*) manages ([0-9]+) of the objects, too: `)

// take waits until the agent has deployed the applications and found them in sync. Their stages
// have named the other tool for each of the objects.
func (s *imported) take(t *testing.T, agent *client, commit string) {
	t.Helper()
	warned := map[string]int{}
	for _, config := range s.configs {
		id := s.id(config)
		if s.manual[config] {
			clustertest.Eventually(t, config+" of "+s.name+" is registered", func() bool { return agent.application(id) != nil })
			agent.sync(id)
		}
		d := agent.mustEnd(id, commit, modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)
		log := agent.logs(d.GetId())
		mustContain(t, log, "nothing to roll out")
		for _, found := range toolWarning.FindAllStringSubmatch(log, -1) {
			n, err := strconv.Atoi(found[2])
			if err != nil {
				t.Fatal(err)
			}
			warned[found[1]] += n
		}
		agent.awaitSyncState(id, modelv1.ApplicationSyncStatus_SYNCED)
	}
	want := map[string]int{}
	for _, o := range s.live {
		want[toolOf(o)]++
	}
	if !maps.Equal(warned, want) {
		t.Errorf("%s: the stages warned of %v, want %v", s.name, warned, want)
	}
}

// toolOf returns what a warning calls the tool that has applied an object of a sample, by the marks
// that the sample has.
func toolOf(o manifest.Object) string {
	labels := o.GetLabels()
	for _, m := range [][2]string{{"kustomize", "Kustomization"}, {"helm", "HelmRelease"}} {
		if name := labels[m[0]+".toolkit.fluxcd.io/name"]; name != "" {
			return fmt.Sprintf("Flux (%s %s/%s)", m[1], labels[m[0]+".toolkit.fluxcd.io/namespace"], name)
		}
	}
	app, _, tracked := strings.Cut(o.GetAnnotations()["argocd.argoproj.io/tracking-id"], ":")
	if !tracked {
		app = labels["app.kubernetes.io/instance"]
	}
	return "Argo CD (Application " + app + ")"
}
