package pullpreview

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/git"
	"github.com/c785c783/piped/piped/githost"
	"github.com/c785c783/piped/piped/store"
)

// Host is the API of the Git host of a repository. *githost.API implements it.
type Host interface {
	OpenPullRequests(ctx context.Context, remote string) ([]githost.OpenRequest, error)
	PullRequest(ctx context.Context, remote string, number int) (githost.Proposed, error)
	UpsertComment(ctx context.Context, remote string, number int, marker, body string) error
	EditComment(ctx context.Context, remote string, number int, marker, body string) error
	SetStatus(ctx context.Context, remote, commit string, s githost.Status) error
	SetDeployment(ctx context.Context, remote string, d githost.Deployed) error
	EndEnvironment(ctx context.Context, remote, environment, description string) error
}

// Repository is a watched repository on a configured Git host.
type Repository struct {
	ID, Remote, Branch string
	Git                *git.Repo
	Host               Host
	Reports            config.GitHost // what is reported to the host
}

// Repositories are the watched repositories. Merge and Foresee are as those of plan previews.
// MergeRef merges a reference of the repository that is no branch.
type Repositories interface {
	Hosted() []Repository
	Merge(ctx context.Context, repoID, base, branch, commit string) (*git.Merge, error)
	MergeRef(ctx context.Context, repoID, base, ref, commit string) (*git.Merge, error)
	Foresee(ctx context.Context, repoID string, m *git.Merge) ([]deploy.AffectedApplication, error)
}

// Namespaces creates and deletes the namespaces of previews.
type Namespaces interface {
	// Ensure creates a namespace for an application unless it exists. The error is of kind
	// Invalid if it exists and is not of this preview, or if the application may not have it.
	Ensure(ctx context.Context, app deploy.Application, name string) error
	// Delete deletes the namespace of a preview, and reports whether it is gone. It does not
	// touch a namespace that is not of this preview.
	Delete(ctx context.Context, app deploy.Application, name string) (gone bool, err error)
}

// Route is what leads to the preview of an application that is next to the application.
type Route struct {
	ByHeader  bool     // requests with the header get the preview
	Header    string   // "name: value"; "" for none
	Hostnames []string // of requests with the header; nil: every host
	OwnHost   bool     // no other application may have the host
	Shared    []string // changes of the pull request that the preview does not have, each with the reason
}

// Config holds the dependencies and settings of a Previewer.
type Config struct {
	Store        *store.Store
	Settings     config.Previews
	Kinds        config.Kinds
	Repositories Repositories
	Namespaces   Namespaces
	// Route returns the hostnames of a preview with mode route at a commit, and what it does not have.
	// The error is of kind Invalid if there can be no such preview.
	Route   func(ctx context.Context, at deploy.GitPath, commit string) (Route, error)
	Metrics Metrics // default: none
	// PodLines returns the last lines that the pods of an application have written, without
	// secrets. Optional.
	PodLines func(ctx context.Context, app deploy.Application, lines int) ([]string, error)
	// Page returns the address of the page of a deployment, "" if it is unknown.
	Page   func(deploymentID string) string
	Agent  string // marks the comments of this agent
	Logger *slog.Logger
	Now    func() time.Time
	NewID  func() string
}

const (
	// settle is how long changes of the store are batched.
	settle = 200 * time.Millisecond
	// busyEvery is the interval of passes while something is to be removed.
	busyEvery = time.Second
)

// Previewer deploys pull requests. Call Run once.
type Previewer struct {
	Config
	wake chan struct{}

	listed   map[string][]githost.OpenRequest // by repository ID, as the host listed them last
	plans    map[pullRequest]plan
	reported map[pullRequest]report
	failures map[string]string             // by repository ID: the last logged error
	known    map[string]bool               // IDs of preview applications that exist, or did since the start
	forks    map[string]forkLabels         // by repository ID
	seen     map[pullRequest]seen          // pull requests of forks
	claims   map[string]pullRequest        // hosts of previews of all repositories, as of this pass
	again    map[string]time.Time          // by application ID: when its removal was requested again
	busy     bool                          // something is being removed
	degraded map[string]deploy.Degradation // by application, as of this pass
	unread   map[string]time.Time          // by application: when its logs gave no lines
}

// pullRequest identifies a pull request.
type pullRequest struct {
	repoID string
	number int
}

// New returns a stopped Previewer.
func New(c Config) *Previewer {
	if c.Metrics == nil {
		c.Metrics = noMetrics{}
	}
	return &Previewer{
		Config: c, wake: make(chan struct{}, 1), listed: map[string][]githost.OpenRequest{}, plans: map[pullRequest]plan{},
		reported: map[pullRequest]report{}, failures: map[string]string{}, forks: map[string]forkLabels{}, seen: map[pullRequest]seen{}, known: map[string]bool{}, again: map[string]time.Time{}, unread: map[string]time.Time{},
	}
}

// Wake makes the Previewer list the open pull requests now, as a webhook requests.
func (p *Previewer) Wake() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// Run reconciles previews until ctx ends.
func (p *Previewer) Run(ctx context.Context) error {
	feed := p.Store.Watch(deploy.TopicDeployment, deploy.TopicApplication, deploy.TopicCommand, deploy.TopicEvent, deploy.TopicPullPreview)
	defer feed.Close()
	list, again := time.NewTimer(0), time.NewTimer(time.Hour)
	defer list.Stop()
	defer again.Stop()
	for {
		fresh := false
		select {
		case <-ctx.Done():
			return nil
		case <-feed.C():
			if p.concerned(feed.Take()) {
				again.Reset(settle)
			}
			continue
		case <-p.wake:
			fresh = true
		case <-list.C:
			fresh = true
		case <-again.C:
		}
		p.busy = false
		for _, r := range p.Repositories.Hosted() {
			p.log(ctx, r.ID, p.repository(ctx, r, fresh))
		}
		if fresh {
			list.Reset(p.Settings.Interval)
		}
		if p.busy {
			again.Reset(busyEvery)
		}
	}
}

// concerned reports whether changes of the store may concern a preview. Deployments of the branch do
// not: a pass reads all applications of its repositories.
func (p *Previewer) concerned(changes []deploy.Change) bool {
	return slices.ContainsFunc(changes, func(c deploy.Change) bool { return c.ApplicationID == "" || p.known[c.ApplicationID] })
}

// log logs an error of a repository when it begins, changes or ends.
func (p *Previewer) log(ctx context.Context, repoID string, err error) {
	switch {
	case ctx.Err() != nil:
	case err == nil && p.failures[repoID] != "":
		delete(p.failures, repoID)
		p.Logger.Info("previews of the repository work again", "repo", repoID)
	case err != nil && p.failures[repoID] != err.Error():
		p.failures[repoID] = err.Error()
		p.Logger.Error("cannot reconcile previews of the repository; trying again", "repo", repoID, "error", err)
	}
}

// repository reconciles the previews of one repository. With fresh it lists the open pull requests
// first.
func (p *Previewer) repository(ctx context.Context, r Repository, fresh bool) error {
	apps, err := p.applications(ctx, r.ID)
	if err != nil {
		return err
	}
	if fresh || p.listed[r.ID] == nil {
		open, err := p.list(ctx, r, apps)
		if err != nil {
			return err
		}
		p.listed[r.ID] = open
	}
	if agent, err := p.Store.Agent(ctx); err != nil || agent.Disabled {
		return err
	}
	known, err := p.recorded(ctx, r.ID)
	if err != nil {
		return err
	}
	open := map[int]githost.OpenRequest{}
	for _, pr := range p.listed[r.ID] {
		open[pr.Number] = pr
	}
	maps.DeleteFunc(p.seen, func(id pullRequest, _ seen) bool { _, ok := open[id.number]; return id.repoID == r.ID && !ok })
	if p.claims, err = p.claimed(ctx); err != nil {
		return err
	}
	var errs []error
	for _, number := range sortedKeys(apps, known) { // first, because this makes room for others
		if _, ok := open[number]; !ok {
			errs = append(errs, wrap(number, p.end(ctx, r, number, apps[number], known[number], "the pull request is closed")))
		}
	}
	if p.degraded, err = p.degradations(ctx); err != nil {
		return errors.Join(append(errs, err)...)
	}
	active := usage(apps)
	for _, number := range slices.Sorted(maps.Keys(open)) {
		err := p.pullRequest(ctx, r, &request{open[number], apps[number], known[number]}, active)
		if err == nil {
			p.remember(r, open[number])
		}
		errs = append(errs, wrap(number, err))
	}
	return errors.Join(errs...)
}

// degradations returns the applications that do not work, by ID.
func (p *Previewer) degradations(ctx context.Context) (map[string]deploy.Degradation, error) {
	list, err := p.Store.Degradations(ctx)
	out := map[string]deploy.Degradation{}
	for _, d := range list {
		out[d.ApplicationID] = d
	}
	return out, err
}

// recorded returns what is stored of the previews of a repository, ended ones included, by pull request.
func (p *Previewer) recorded(ctx context.Context, repoID string) (map[int]deploy.PullPreview, error) {
	list, err := p.Store.RetainedPullPreviews(ctx, repoID, 0)
	out := map[int]deploy.PullPreview{}
	for _, one := range list {
		out[one.Number] = one
	}
	return out, err
}

// sortedKeys returns the pull requests that have an application or a record, sorted.
func sortedKeys(apps map[int][]deploy.Application, known map[int]deploy.PullPreview) []int {
	numbers := slices.Collect(maps.Keys(apps))
	for number := range known {
		numbers = append(numbers, number)
	}
	slices.Sort(numbers)
	return slices.Compact(numbers)
}

func wrap(number int, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("pull request #%d: %w", number, err)
}

// list returns the open pull requests that the branch is the base of. A pull request with a preview
// that the list lacks is asked for, because a list that changes while it is read has gaps.
func (p *Previewer) list(ctx context.Context, r Repository, apps map[int][]deploy.Application) ([]githost.OpenRequest, error) {
	if len(apps) == 0 {
		if configured, err := p.configured(ctx, r); err != nil || !configured {
			return []githost.OpenRequest{}, err
		}
	}
	found, err := r.Host.OpenPullRequests(ctx, r.Remote)
	if err != nil {
		return nil, err
	}
	out := []githost.OpenRequest{}
	for _, pr := range found {
		if pr.Base == r.Branch {
			out = append(out, pr)
		}
	}
	for number, of := range apps {
		if len(alive(of)) == 0 || slices.ContainsFunc(found, func(pr githost.OpenRequest) bool { return pr.Number == number }) {
			continue
		}
		now, err := r.Host.PullRequest(ctx, r.Remote, number)
		if err != nil && !deploy.IsKind(err, deploy.Invalid) {
			return nil, err
		}
		if err == nil && now.Open {
			return nil, deploy.Errorf(deploy.Unavailable, "pull request #%d is open, but not among the open ones: they changed while they were listed", number)
		}
	}
	return out, nil
}

// configured reports whether an application of the branch has previews, so that hosts of
// repositories without any are not asked. A new application has none before its configuration is
// on the branch or it is in a pull request of an application that has.
func (p *Previewer) configured(ctx context.Context, r Repository) (bool, error) {
	head, ok := r.Git.Head()
	if !ok {
		return false, nil
	}
	tree, err := r.Git.At(head.Hash)
	if err != nil {
		return false, err
	}
	apps, _, err := p.Store.ListApplications(ctx, store.ApplicationQuery{RepoID: r.ID})
	if err != nil {
		return false, err
	}
	for _, app := range apps {
		if p.previewOf(tree, app.Git) != nil {
			return true, nil
		}
	}
	return false, nil
}

// previewOf returns spec.preview of an application in a tree, nil if there is none.
func (p *Previewer) previewOf(tree fs.FS, at deploy.GitPath) *config.Preview {
	cfg := p.configOf(tree, at)
	if cfg == nil {
		return nil
	}
	return cfg.Preview
}

// applications returns the preview applications of a repository by pull request, sorted by place,
// deleted ones included.
func (p *Previewer) applications(ctx context.Context, repoID string) (map[int][]deploy.Application, error) {
	all, _, err := p.Store.ListApplications(ctx, store.ApplicationQuery{RepoID: repoID, IncludeAll: true, IncludeDeleted: true})
	out := map[int][]deploy.Application{}
	for _, app := range all {
		if app.IsPreview() {
			p.known[app.ID] = true
			out[app.Git.PullRequest] = append(out[app.Git.PullRequest], app)
		}
	}
	for _, apps := range out {
		slices.SortFunc(apps, func(a, b deploy.Application) int { return cmp.Compare(a.Git.ConfigPath(), b.Git.ConfigPath()) })
	}
	return out, err
}

// alive returns the applications that are not deleted.
func alive(apps []deploy.Application) []deploy.Application {
	return slices.DeleteFunc(slices.Clone(apps), func(a deploy.Application) bool { return a.Deleted })
}

// used counts previews.
type used struct {
	requests int            // pull requests with a preview
	places   map[string]int // by the path of the configuration: previews of the application
}

func usage(apps map[int][]deploy.Application) *used {
	u := &used{places: map[string]int{}}
	for _, of := range apps {
		if len(alive(of)) > 0 {
			u.requests++
		}
		for _, app := range alive(of) {
			u.places[app.Git.ConfigPath()]++
		}
	}
	return u
}
