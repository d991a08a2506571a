package importer

import (
	"context"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/c785c783/piped/piped/git"
	"github.com/c785c783/piped/piped/manifest"
)

// Request describes an import.
type Request struct {
	Documents []Document
	Checkout  Checkout
	// Providers are the names of platform providers by what other tools call their clusters: a
	// server's address, a name, or the Secret with a kubeconfig.
	Providers map[string]string
	// Dir is the directory of the checkout for applications that have none of their own.
	Dir string
	// Render returns the objects of an application whose files are laid over the checkout.
	// ErrUnknown means that they cannot be known here.
	Render func(ctx context.Context, files []File, config string) ([]manifest.Object, error)
}

// Checkout is the work tree that an import adds to.
type Checkout struct {
	Files fs.FS
	// Remotes are the addresses of its repository. Without any, every address is taken for it.
	Remotes []string
}

// File is a file to write, by its path in the checkout.
type File struct {
	Path string
	Text []byte
}

// Result is what became of one document.
type Result struct {
	Document Document
	// Files are to be written. There are none if a finding blocks.
	Files    []File
	Configs  []string // those of Files that configure an application
	Findings []Finding
	// Objects are adopted. Unknown reports whether there may be others: those that are listed are
	// then what the other tool has recorded, without content.
	Objects []manifest.Object
	Unknown bool
	Plan    []string // steps of the takeover
}

// Blocked reports whether nothing is written for the document although it deploys something.
func (r Result) Blocked() bool {
	return slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.Blocks })
}

// Convert returns what becomes of each document that deploys something, in their order. The
// error is that of ctx.
func Convert(ctx context.Context, req Request) ([]Result, error) {
	c := &converter{Request: req, taken: map[string]bool{}}
	var out []Result
	for _, d := range req.Documents {
		results, err := c.document(ctx, d)
		if err != nil {
			return nil, err
		}
		out = append(out, results...)
	}
	return out, nil
}

// converter converts the documents of one request.
type converter struct {
	Request
	taken map[string]bool // paths of the files that are written
}

// unit is a document in conversion.
type unit struct {
	*converter
	document Document
	root     field
	spec     spec // what all of its applications have
	apps     []application
	// substitutes reports whether the other tool replaces variables in the objects.
	substitutes bool
	sources     []field // specs of the sources that it refers to
}

// application is one application of a unit.
type application struct {
	dir   string
	file  string // name of the configuration
	spec  spec
	files []File
	// fills reports whether the other tool sets the namespace only of objects without one.
	fills bool
}

const (
	groupArgo      = "argoproj.io"
	groupKustomize = "kustomize.toolkit.fluxcd.io"
	groupHelm      = "helm.toolkit.fluxcd.io"
	groupSource    = "source.toolkit.fluxcd.io"
)

// document converts one document.
func (c *converter) document(ctx context.Context, d Document) ([]Result, error) {
	switch d.group() + "/" + d.kind() {
	case groupArgo + "/Application":
		return c.unit(ctx, d, (*unit).argo, argoPlan)
	case groupArgo + "/ApplicationSet":
		return c.argoSet(ctx, d)
	case groupKustomize + "/Kustomization":
		return c.unit(ctx, d, (*unit).kustomization, fluxPlan)
	case groupHelm + "/HelmRelease":
		return c.unit(ctx, d, (*unit).release, fluxPlan)
	case groupSource + "/GitRepository", groupSource + "/HelmRepository", groupSource + "/OCIRepository", groupSource + "/HelmChart", "/ConfigMap", "/Secret":
		return nil, nil // read where something refers to them
	}
	if reason := otherKinds[d.group()+"/"+d.kind()]; reason != "" {
		return []Result{{Document: d, Findings: []Finding{{File: d.File, Path: d.String(), Reason: reason}}}}, nil
	}
	return nil, nil
}

// otherKinds are kinds of both tools that declare no application, with what takes their place.
var otherKinds = map[string]string{
	groupArgo + "/AppProject":                       "its restrictions are spec.tenancy of the agent, and its sync windows syncWindows of the applications",
	groupArgo + "/Rollout":                          "convert it to a Deployment with a pipeline of canary stages, in a commit of its own: its pods are created anew",
	groupArgo + "/AnalysisTemplate":                 "write the queries into an ANALYSIS stage or a file of kind AnalysisTemplate in .pipe/",
	"flagger.app/Canary":                            "write a pipeline with canary stages, K8S_TRAFFIC_ROUTING and ANALYSIS",
	groupSource + "/Bucket":                         "the agent reads Git, and no buckets",
	"image.toolkit.fluxcd.io/ImageRepository":       "registries are not scanned: the CI that pushes an image registers an event (pipectl event register)",
	"image.toolkit.fluxcd.io/ImagePolicy":           "registries are not scanned: the CI that pushes an image registers an event (pipectl event register)",
	"image.toolkit.fluxcd.io/ImageUpdateAutomation": "write eventWatcher, and register an event in the CI that pushes the image",
	"notification.toolkit.fluxcd.io/Alert":          "write spec.notifications of the agent",
	"notification.toolkit.fluxcd.io/Provider":       "write spec.notifications or spec.gitHosts of the agent",
	"notification.toolkit.fluxcd.io/Receiver":       "write spec.webhooks of the agent",
}

// unit converts a document with convert, and adds its plan.
func (c *converter) unit(ctx context.Context, d Document, convert func(*unit), plan func(*unit) []string) ([]Result, error) {
	u := &unit{converter: c, document: d, root: d.root()}
	if d.name() == "" {
		u.root.get("metadata", "name").missing("the object has no name")
	}
	convert(u)
	if len(u.apps) == 0 && !u.root.track.blocked() {
		u.root.get("spec").missing("it declares nothing that can be imported")
	}
	r := Result{Document: d}
	if !u.root.track.blocked() { // otherwise not everything was read
		u.root.rest()
		for _, s := range u.sources {
			s.rest()
		}
		for _, a := range u.apps {
			if err := u.finish(ctx, a, &r); err != nil {
				return nil, err
			}
		}
	}
	r.Findings = u.root.track.findings
	if r.Blocked() {
		r.Files, r.Configs, r.Objects = nil, nil, nil
		return []Result{r}, nil
	}
	for _, file := range r.Files {
		c.taken[file.Path] = true
	}
	r.Plan = plan(u)
	return []Result{r}, nil
}

// finish adds the files of an application to the result, and what its objects show.
func (u *unit) finish(ctx context.Context, a application, r *Result) error {
	config := path.Join(a.dir, a.file)
	files := func() ([]File, error) {
		text, err := a.spec.file(fmt.Sprintf("%s (%s)", u.document, u.document.File))
		return append(slices.Clone(a.files), File{config, text}), err
	}
	written, err := files()
	if err != nil {
		return err
	}
	if u.Render != nil {
		objects, err := u.Render(ctx, written, config)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case isUnknown(err):
			r.Unknown, r.Objects = true, append(r.Objects, inventory(u.document)...)
			if u.substitutes {
				u.root.track.add("spec.postBuild", true, false, "the manifests are not in the checkout, and may have variables, which are not filled in")
			}
		case err != nil:
			u.root.track.add("", true, false, "what would be written for it does not render: %v", err)
		default:
			a.placeNamespaces(objects, u.root.track)
			u.marks(objects)
			if u.substitutes {
				u.variables(objects)
			}
			r.Objects = append(r.Objects, a.placed(objects)...)
		}
		if written, err = files(); err != nil {
			return err
		}
	}
	r.Files = append(r.Files, written...)
	r.Configs = append(r.Configs, config)
	return nil
}

// placed returns the objects with the namespaces that the configuration gives them.
func (a *application) placed(objects []manifest.Object) []manifest.Object {
	out := manifest.Clone(objects)
	for _, o := range out {
		if in := a.spec.Input.Namespace; in != "" && !slices.Contains(clusterKinds, o.GetKind()) {
			o.SetNamespace(in)
		}
	}
	return out
}

// clusterKinds are frequent kinds without a namespace.
var clusterKinds = []string{"Namespace", "ClusterRole", "ClusterRoleBinding", "CustomResourceDefinition", "PersistentVolume", "StorageClass", "PriorityClass", "IngressClass", "ClusterIssuer",
	"MutatingWebhookConfiguration", "ValidatingWebhookConfiguration", "APIService", "GatewayClass", "RuntimeClass"}

// placeNamespaces leaves input.namespace out if all objects name their namespaces, where the
// other tool sets it only for those without one. Where only some do, nothing fits.
func (a *application) placeNamespaces(objects []manifest.Object, t *track) {
	namespace := a.spec.Input.Namespace
	if !a.fills || namespace == "" {
		return
	}
	var other []string
	open := false
	for _, o := range objects {
		switch in := o.GetNamespace(); {
		case in == "":
			open = open || !slices.Contains(clusterKinds, o.GetKind())
		case in != namespace && !slices.Contains(other, in):
			other = append(other, in)
		}
	}
	switch {
	case len(other) == 0:
	case open || a.spec.Input.HelmChart != nil:
		t.add("spec.destination.namespace", true, false, "some objects name another namespace (%s) and others none: input.namespace would move all of them to %s; name the namespace in every manifest, and import again",
			strings.Join(other, ", "), namespace)
	default:
		a.spec.Input.Namespace, a.spec.Input.AutoCreateNamespace = "", false
	}
}

// add adds an application with the settings of the unit.
func (u *unit) add(a application) {
	a.file = configFile
	if u.used(path.Join(a.dir, a.file)) {
		a.file = u.unused(a.spec.Name, func(name string) string { return path.Join(a.dir, name+".pipecd.yaml") }) + ".pipecd.yaml"
	}
	u.apps = append(u.apps, a)
}

// used reports whether another application of the import writes a file.
func (u *unit) used(file string) bool {
	return u.taken[file] || slices.ContainsFunc(u.apps, func(a application) bool { return path.Join(a.dir, a.file) == file || a.writes(file) })
}

// writes reports whether the application writes a file in addition to its configuration.
func (a *application) writes(file string) bool {
	return slices.ContainsFunc(a.files, func(f File) bool { return f.Path == file })
}

// unused returns a name whose file no other application writes: the name, NAMESPACE-NAME if it is
// taken, and then with a number.
func (u *unit) unused(name string, file func(name string) string) string {
	full := name
	if namespace := u.document.namespace(); namespace != "" && u.used(file(name)) {
		full = namespace + "-" + name
	}
	free := full
	for n := 2; u.used(file(free)); n++ {
		free = fmt.Sprintf("%s-%d", full, n)
	}
	return free
}

var unfit = regexp.MustCompile(`[^A-Za-z0-9._-]+`)

// ownDir returns a new directory for an application.
func (u *unit) ownDir(name string) string {
	in := func(name string) string { return path.Join(u.Dir, name) }
	return in(u.unused(strings.Trim(unfit.ReplaceAllString(name, "-"), "-."), func(name string) string { return path.Join(in(name), configFile) }))
}

// inside returns a clean path of the checkout, and false for one that leads out of it.
func inside(name string) (string, bool) {
	clean := path.Clean(strings.TrimPrefix(name, "/"))
	return clean, fs.ValidPath(clean)
}

// relative returns a path of the checkout as seen from a directory.
func relative(from, to string) string {
	up := ""
	for from = path.Clean(from); from != "." && from != to && !strings.HasPrefix(to, from+"/"); from = path.Dir(from) {
		up += "../"
	}
	if from != "." {
		to = strings.TrimPrefix(strings.TrimPrefix(to, from), "/")
	}
	return path.Clean(up + to)
}

// isDir reports whether a directory exists in the checkout.
func (c Checkout) isDir(dir string) bool {
	info, err := fs.Stat(c.Files, dir)
	return err == nil && info.IsDir()
}

func (c Checkout) isFile(name string) bool {
	info, err := fs.Stat(c.Files, name)
	return err == nil && !info.IsDir()
}

// kustomizations are the names of kustomization files.
var kustomizations = []string{"kustomization.yaml", "kustomization.yml", "Kustomization"}

func isKustomization(name string) bool { return slices.Contains(kustomizations, name) }

// kustomization returns the path of the kustomization file of a directory, "" without one.
func (c Checkout) kustomization(dir string) string {
	for _, name := range kustomizations {
		if c.isFile(path.Join(dir, name)) {
			return path.Join(dir, name)
		}
	}
	return ""
}

// shown returns the addresses without credentials.
func (c Checkout) shown() string {
	var out []string
	for _, r := range c.Remotes {
		out = append(out, git.ShownRemote(r))
	}
	return strings.Join(out, ", ")
}

// holds reports whether an address is one of the checkout's repository.
func (c Checkout) holds(address string) bool {
	return len(c.Remotes) == 0 || slices.ContainsFunc(c.Remotes, func(r string) bool { return sameRemote(r, address) })
}

var scheme = regexp.MustCompile(`^[a-z+]+://`)

// sameRemote reports whether two addresses, over HTTP or SSH, name the same repository.
func sameRemote(a, b string) bool {
	plain := func(address string) string {
		address = strings.ToLower(strings.TrimSuffix(strings.TrimRight(address, "/"), ".git"))
		if !scheme.MatchString(address) {
			address = strings.Replace(address, ":", "/", 1) // git@host:path
		}
		address = scheme.ReplaceAllString(address, "")
		_, after, found := strings.Cut(address, "@")
		if found {
			address = after
		}
		return strings.Replace(address, ":22/", "/", 1)
	}
	return plain(a) == plain(b)
}

// manifests returns the manifests below a directory whose paths in it match, sorted and
// relative to it.
func (c Checkout) manifests(dir string, match func(name string) bool) (out []string, err error) {
	err = fs.WalkDir(c.Files, dir, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		below := relative(dir, name)
		if entry.IsDir() {
			if strings.HasPrefix(entry.Name(), ".") && name != dir {
				return fs.SkipDir
			}
			return nil
		}
		switch path.Ext(name) {
		case ".yaml", ".yml", ".json":
			if !isConfiguration(entry.Name()) && match(below) {
				out = append(out, below)
			}
		}
		return nil
	})
	slices.Sort(out)
	return out, err
}

// merged returns two maps as one, whose second wins.
func merged(a, b map[string]string) map[string]string {
	if len(a)+len(b) == 0 {
		return nil
	}
	out := maps.Clone(a)
	if out == nil {
		out = map[string]string{}
	}
	maps.Copy(out, b)
	return out
}
