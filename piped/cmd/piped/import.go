package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/client-go/discovery"
	cached "k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/c785c783/piped/piped/app"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/git"
	"github.com/c785c783/piped/piped/importer"
	"github.com/c785c783/piped/piped/manifest"
	"github.com/c785c783/piped/piped/source"
	"github.com/c785c783/piped/piped/source/kubernetes"
	"github.com/c785c783/piped/piped/source/render"
	"github.com/c785c783/piped/piped/source/secret"
)

// importFlags are the flags of piped import.
type importFlags struct {
	repoDir, output, appsDir       string
	remotes, providers             []string
	fromCluster, dryRun, force     bool
	kubeconfig, context, namespace string
}

func importCommand(stdout, stderr io.Writer) *cobra.Command {
	var f importFlags
	cmd := &cobra.Command{
		Use:   "import FILE...|--from-cluster",
		Short: "Write configurations for applications of Argo CD and Flux",
		Long: `Read Application and ApplicationSet of Argo CD and Kustomization and HelmRelease of Flux
from files or from a cluster, and write an application's app.pipecd.yaml for each into a
checkout of the repository that they deploy. Files of Flux's sources (GitRepository,
HelmRepository, OCIRepository, HelmChart) and of ConfigMaps with values are given as well.

The command lists, with the path of each field, what cannot be expressed and why, what
belongs into the configuration of the agent, and the steps of the takeover. An application
is not written if a field that decides about its objects has no equivalent, or if its files
do not render. What is written is not compared with what is live: a pinned commit, a tag,
another branch and skipCrds are listed, and pipectl application adoptions shows what they
change. The files are checked like by piped check. Existing files are not overwritten
without --force.

The exit code is 1 when something was not written or has problems.`,
		RunE: func(cmd *cobra.Command, files []string) error {
			if f.fromCluster == (len(files) > 0) {
				return &failure{exitUsage, errors.New("name files, or use --from-cluster")}
			}
			i, err := newImport(f, stdout, stderr)
			if err != nil {
				return err
			}
			return errors.Join(i.run(cmd.Context(), files), i.root.Close())
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.repoDir, "repo-dir", ".", "the checkout of the repository that is deployed")
	flags.StringArrayVar(&f.remotes, "repo", nil, "an address of that repository; default: the remotes of the checkout")
	flags.StringArrayVar(&f.providers, "provider", nil, "CLUSTER=NAME: the platform provider for a cluster, by its address or name in Argo CD or its Secret in Flux")
	flags.StringVar(&f.appsDir, "apps-dir", "piped", "the directory of the checkout for applications that have none of their own, such as charts of a chart repository")
	flags.BoolVar(&f.fromCluster, "from-cluster", false, "read the applications that are live, and warn of objects that the other tool still manages")
	flags.StringVar(&f.kubeconfig, "kubeconfig", "", "the kubeconfig for --from-cluster; default: that of kubectl, or the cluster of the pod")
	flags.StringVar(&f.context, "context", "", "the context of the kubeconfig; default: the current one")
	flags.StringVarP(&f.namespace, "namespace", "n", "", "the namespace of the applications for --from-cluster; default: all")
	flags.StringVarP(&f.output, "output", "o", "", "write below this directory instead of the checkout")
	flags.BoolVar(&f.dryRun, "dry-run", false, "print the files instead of writing them")
	flags.BoolVar(&f.force, "force", false, "overwrite existing files")
	cmd.SetFlagErrorFunc(usageError)
	return cmd
}

// importing is one run of piped import.
type importing struct {
	importFlags
	root           *os.Root // the checkout
	top            string
	providerOf     map[string]string
	stdout, stderr io.Writer
}

func newImport(f importFlags, stdout, stderr io.Writer) (*importing, error) {
	i := &importing{importFlags: f, providerOf: map[string]string{}, stdout: stdout, stderr: stderr}
	for _, p := range f.providers {
		at := strings.LastIndex(p, "=")
		if at <= 0 || at == len(p)-1 {
			return nil, &failure{exitUsage, fmt.Errorf("--provider %q: expected CLUSTER=NAME", p)}
		}
		i.providerOf[p[:at]] = p[at+1:]
	}
	if !fs.ValidPath(f.appsDir) {
		return nil, &failure{exitUsage, fmt.Errorf("--apps-dir %q: expected a directory of the checkout", f.appsDir)}
	}
	dir, err := filepath.Abs(f.repoDir)
	if err != nil {
		return nil, err
	}
	i.top = workTree(dir)
	if i.root, err = os.OpenRoot(i.top); err != nil {
		return nil, &failure{exitUsage, fmt.Errorf("--repo-dir: %w", err)}
	}
	if len(i.remotes) == 0 {
		i.remotes, err = git.WorkTreeRemotes(i.top)
	}
	return i, err
}

// run imports the documents of files or of a cluster.
func (i *importing) run(ctx context.Context, files []string) error {
	live, err := i.cluster()
	if err != nil {
		return err
	}
	var documents []importer.Document
	if i.fromCluster {
		documents, err = live.Documents(ctx, i.namespace)
	} else {
		documents, err = readDocuments(files)
	}
	if err != nil {
		return err
	}
	results, err := i.convert(ctx, documents)
	if err != nil {
		return err
	}
	if i.fromCluster {
		if err := i.warn(ctx, live, results); err != nil {
			return err
		}
	}
	if len(results) == 0 {
		return &failure{exitUsage, errors.New("there is nothing to import: expected Application or ApplicationSet of Argo CD, Kustomization or HelmRelease of Flux")}
	}
	return i.report(ctx, results)
}

// cluster connects to the cluster of --from-cluster.
func (i *importing) cluster() (c importer.Cluster, err error) {
	if !i.fromCluster {
		return c, nil
	}
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = i.kubeconfig
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: i.context}).ClientConfig()
	if err != nil {
		return c, &failure{exitUsage, fmt.Errorf("find the cluster: %w", err)}
	}
	kinds, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return c, fmt.Errorf("connect to the cluster: %w", err)
	}
	c.Mapper = restmapper.NewDeferredDiscoveryRESTMapper(cached.NewMemCacheClient(kinds))
	if c.Client, err = dynamic.NewForConfig(config); err != nil {
		return c, fmt.Errorf("connect to the cluster: %w", err)
	}
	return c, nil
}

// warn warns of the objects that another tool still manages.
func (i *importing) warn(ctx context.Context, live importer.Cluster, results []importer.Result) error {
	for _, r := range results {
		managed, err := live.Managed(ctx, r.Objects)
		if err != nil {
			return err
		}
		for _, tool := range slices.Sorted(maps.Keys(managed)) {
			fmt.Fprintf(i.stderr, "warning: %s still manages %s of %s: %s\n", tool, count(len(managed[tool]), "object"), r.Document, strings.Join(managed[tool], ", "))
		}
	}
	return nil
}

func (i *importing) convert(ctx context.Context, documents []importer.Document) ([]importer.Result, error) {
	return importer.Convert(ctx, importer.Request{
		Documents: documents, Providers: i.providerOf, Dir: i.appsDir, Render: i.render,
		Checkout: importer.Checkout{Files: i.root.FS(), Remotes: i.remotes},
	})
}

// readDocuments reads the objects of files.
func readDocuments(files []string) (out []importer.Document, err error) {
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return nil, &failure{exitUsage, fmt.Errorf("read the files to import: %w", err)}
		}
		more, err := importer.Parse(file, data)
		if err != nil {
			return nil, err
		}
		out = append(out, more...)
	}
	return out, nil
}

// render returns the objects of an application that is not written yet.
func (i *importing) render(ctx context.Context, files []importer.File, config string) ([]manifest.Object, error) {
	charts, err := newOfflineCharts()
	if err != nil {
		return nil, err
	}
	tree := importer.Lay(i.root.FS(), files)
	loader := &source.Loader{
		Tree: func(string, string) (fs.FS, error) { return tree, nil }, Secrets: secret.New(secret.Placeholders()), Kinds: app.Kinds(),
		Renderers: map[string]render.Renderer{deploy.KindKubernetes: kubernetes.New(kubernetes.Config{Charts: charts, Remotes: offline{}})},
	}
	src, err := loader.Load(ctx, gitPath(config), "")
	if errors.Is(err, errOffline) {
		return nil, importer.ErrUnknown
	}
	if err != nil {
		return nil, err
	}
	return src.Objects, nil
}

// report writes the files and prints what became of each document.
func (i *importing) report(ctx context.Context, results []importer.Result) error {
	var files []importer.File
	for _, r := range results {
		files = append(files, r.Files...)
	}
	if err := i.write(files); err != nil {
		return err
	}
	written, blocked := 0, 0
	var problems []string
	for _, r := range results {
		fmt.Fprintf(i.stdout, "%s (%s)\n", r.Document, r.Document.File)
		for _, config := range r.Configs {
			fmt.Fprintf(i.stdout, "  %s: %s\n", i.done(), filepath.Join(i.target(), filepath.FromSlash(config)))
		}
		if r.Blocked() {
			blocked++
			fmt.Fprintln(i.stdout, "  is not written")
		}
		written += len(r.Configs)
		i.findings("why it is not written", r.Findings, func(f importer.Finding) bool { return f.Blocks })
		i.findings("cannot be expressed", r.Findings, func(f importer.Finding) bool { return !f.Blocks && !f.Agent })
		i.findings("belongs into the configuration of the agent", r.Findings, func(f importer.Finding) bool { return f.Agent })
		i.adopted(r)
		for n, step := range r.Plan {
			if n == 0 {
				fmt.Fprintln(i.stdout, "  takeover")
			}
			fmt.Fprintf(i.stdout, "    %d. %s\n", n+1, step)
		}
		more, err := i.check(ctx, r)
		if err != nil {
			return err
		}
		problems = append(problems, more...)
	}
	for _, p := range sorted(problems) {
		fmt.Fprintln(i.stdout, p)
	}
	fmt.Fprintf(i.stdout, "%s written, %d not, %s\n", count(written, "application"), blocked, count(len(problems), "problem"))
	if blocked > 0 || len(problems) > 0 {
		return &failure{code: exitFailed}
	}
	return nil
}

// done says what happened to a file.
func (i *importing) done() string {
	if i.dryRun {
		return "would be written"
	}
	return "is written"
}

// target is the directory below which files are written.
func (i *importing) target() string {
	if i.output != "" {
		return i.output
	}
	return i.repoDirShown()
}

// repoDirShown returns the top of the checkout, as the user named it.
func (i *importing) repoDirShown() string {
	dir, err := filepath.Abs(i.repoDir)
	if err != nil || dir != i.top {
		return i.top
	}
	return i.repoDir
}

// findings prints those that match, below a title.
func (i *importing) findings(title string, all []importer.Finding, match func(importer.Finding) bool) {
	for n, f := range slices.DeleteFunc(slices.Clone(all), func(f importer.Finding) bool { return !match(f) }) {
		if n == 0 {
			fmt.Fprintf(i.stdout, "  %s\n", title)
		}
		fmt.Fprintf(i.stdout, "    %s\n", f)
	}
}

// adopted prints the objects that the application takes over.
func (i *importing) adopted(r importer.Result) {
	if r.Blocked() {
		return
	}
	kinds := map[string][]string{}
	for _, o := range r.Objects {
		kinds[o.GetKind()] = append(kinds[o.GetKind()], o.GetName())
	}
	if len(kinds) > 0 {
		fmt.Fprintln(i.stdout, "  takes over, where they are live")
	}
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		slices.Sort(kinds[kind])
		fmt.Fprintf(i.stdout, "    %s %s\n", kind, strings.Join(kinds[kind], ", "))
	}
	if r.Unknown {
		fmt.Fprintln(i.stdout, "  takes over what a chart or base renders that is not in the checkout: pipectl application adoptions lists it")
	}
}

// write writes or prints files. Before the first it finds out whether all may be written.
func (i *importing) write(files []importer.File) error {
	if err := oneText(files); err != nil {
		return err
	}
	if i.dryRun {
		for _, f := range files {
			fmt.Fprintf(i.stdout, "--- %s\n%s", f.Path, f.Text)
		}
		return nil
	}
	root := i.root
	if i.output != "" {
		if err := os.MkdirAll(i.output, 0o755); err != nil {
			return fmt.Errorf("write the applications: %w", err)
		}
		var err error
		if root, err = os.OpenRoot(i.output); err != nil {
			return fmt.Errorf("write the applications: %w", err)
		}
		defer root.Close()
	}
	for _, f := range files {
		if _, err := root.Lstat(f.Path); err == nil && !i.force {
			return fmt.Errorf("%s exists, and is not overwritten without --force", filepath.Join(i.target(), f.Path))
		}
	}
	for _, f := range files {
		if err := root.MkdirAll(filepath.Dir(f.Path), 0o755); err != nil {
			return fmt.Errorf("write the applications: %w", err)
		}
		if err := root.WriteFile(f.Path, f.Text, 0o644); err != nil {
			return fmt.Errorf("write the applications: %w", err)
		}
	}
	return nil
}

// oneText refuses files of which the last would win.
func oneText(files []importer.File) error {
	texts := map[string][]byte{}
	for _, f := range files {
		if text, again := texts[f.Path]; again && !bytes.Equal(text, f.Text) {
			return fmt.Errorf("two applications write different texts to %s: import them one by one with --apps-dir", f.Path)
		}
		texts[f.Path] = f.Text
	}
	return nil
}

// check returns the problems of written applications as piped check finds them.
func (i *importing) check(ctx context.Context, r importer.Result) ([]string, error) {
	c := &checker{}
	for _, config := range r.Configs {
		show := func(name string) string { return filepath.Join(i.target(), filepath.FromSlash(name)) }
		if err := c.tree(ctx, tree{fsys: importer.Lay(i.root.FS(), r.Files), dir: filepath.Dir(config), file: config, show: show}); err != nil {
			return nil, err
		}
	}
	for _, w := range sorted(c.warnings) {
		fmt.Fprintln(i.stderr, "warning: "+w)
	}
	return c.problems, nil
}
