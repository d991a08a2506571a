package preview

import (
	"context"
	"io/fs"
	"log/slog"
	"time"

	"github.com/c785c783/piped/piped/background"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/git"
	"github.com/c785c783/piped/piped/manifest"
	"github.com/c785c783/piped/piped/source"
	"github.com/c785c783/piped/piped/store"
)

// KeepFor is how long results are stored.
const KeepFor = 24 * time.Hour

// Repositories are the watched repositories.
type Repositories interface {
	// Merge merges a commit of a branch into the watched branch of a repository, which must be
	// base. Errors are of kind Invalid if that is not possible.
	Merge(ctx context.Context, repoID, base, branch, commit string) (*git.Merge, error)
	// Foresee returns the applications that the merge would affect, by directory.
	Foresee(ctx context.Context, repoID string, m *git.Merge) ([]deploy.AffectedApplication, error)
}

// Sources render applications with placeholders for secrets. A *source.Loader with concealed
// keys implements it.
type Sources interface {
	Load(ctx context.Context, at deploy.GitPath, commit string) (*source.Source, error)
	LoadFrom(ctx context.Context, files fs.FS, at deploy.GitPath, commit string) (*source.Source, error)
}

// Plan returns a planned deployment without creating it, and its source. If the application
// may be deployed it calls target to load the source. It loads the running commit from
// sources.
type Plan func(ctx context.Context, app deploy.Application, d deploy.Deployment, target func(context.Context) (*source.Source, error), sources Sources) (deploy.Deployment, *source.Source, error)

// Config holds the dependencies and settings of a Previewer.
type Config struct {
	Store        *store.Store
	Repositories Repositories
	Sources      Sources
	Plan         Plan
	// Changes returns what a deployment does with each object, as it is planned, compared with
	// the source that runs, which is nil before the first deployment.
	Changes func(ctx context.Context, d deploy.Deployment, running, target *source.Source) (deploy.Effect, error)
	// Place returns the objects of a source as they are applied on a platform provider, with
	// the namespace of spec.input.namespace. It is optional: if nil, the rendered objects are
	// used.
	Place     func(ctx context.Context, provider string, src *source.Source) []manifest.Object
	Workers   int           // concurrent previews; default 3
	Timeout   time.Duration // of a command without one; default 5 minutes
	ScanEvery time.Duration // fallback for missed changes; default 30 s
	Logger    *slog.Logger
	Now       func() time.Time
}

// Previewer builds plan previews. Call Run once.
type Previewer struct {
	Config
	queue background.Queue // of IDs of open commands
}

// New returns a stopped Previewer.
func New(c Config) *Previewer {
	if c.Workers == 0 {
		c.Workers = 3
	}
	if c.Timeout == 0 {
		c.Timeout = 5 * time.Minute
	}
	if c.ScanEvery == 0 {
		c.ScanEvery = background.DefaultScanEvery
	}
	if c.Place == nil {
		c.Place = func(_ context.Context, _ string, src *source.Source) []manifest.Object { return src.Objects }
	}
	return &Previewer{Config: c}
}

// Run builds requested plan previews until ctx ends. It returns after the workers have
// stopped. Open previews are built after the next start.
func (p *Previewer) Run(ctx context.Context) error {
	p.queue = background.NewQueue()
	background.Loop{
		Queue: p.queue, Workers: p.Workers, ScanEvery: p.ScanEvery, Scan: p.scan, Handle: p.answer,
		Changed: func(ctx context.Context, _ []deploy.Change) { p.enqueue(ctx) },
		Failed: func(id string, err error) {
			p.Logger.Warn("cannot answer a plan preview now; trying again", "command", id, "error", err)
		},
	}.Run(ctx, p.Store.Watch(deploy.TopicCommand))
	return nil
}

// scan enqueues every open preview and deletes old results.
func (p *Previewer) scan(ctx context.Context) {
	p.enqueue(ctx)
	if err := p.Store.RemovePlanPreviews(ctx, p.Now().Add(-KeepFor)); err != nil && ctx.Err() == nil {
		p.Logger.Warn("cannot remove old plan previews; trying again", "error", err)
	}
}

func (p *Previewer) enqueue(ctx context.Context) {
	open, err := p.Store.OpenCommands(ctx, deploy.CommandBuildPlanPreview)
	if err != nil && ctx.Err() == nil {
		p.Logger.Error("cannot read plan previews to build; trying again", "error", err)
	}
	for _, c := range open {
		p.queue.Add(c.ID)
	}
}
