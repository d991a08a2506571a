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

// KeepFor is how long what a preview told can be asked for.
const KeepFor = 24 * time.Hour

// Repositories are the watched repositories.
type Repositories interface {
	// Merge merges a commit of a branch into the watched branch of a repository,
	// which must be base. Errors are of kind Invalid when that cannot be done.
	Merge(ctx context.Context, repoID, base, branch, commit string) (*git.Merge, error)
	// Foresee returns the applications that the merge would concern, by directory.
	Foresee(ctx context.Context, repoID string, m *git.Merge) ([]deploy.AffectedApplication, error)
}

// Sources render applications, with names in the place of decrypted secrets. A
// *source.Loader whose keys are concealed does.
type Sources interface {
	Load(ctx context.Context, at deploy.GitPath, commit string) (*source.Source, error)
	LoadFrom(ctx context.Context, files fs.FS, at deploy.GitPath, commit string) (*source.Source, error)
}

// Plan returns a deployment that is not made as it would be planned, and what it
// would bring out, which target loads once the application may be deployed at all.
// What runs is loaded from sources.
type Plan func(ctx context.Context, app deploy.Application, d deploy.Deployment, target func(context.Context) (*source.Source, error), sources Sources) (deploy.Deployment, *source.Source, error)

// Config is what a Previewer needs.
type Config struct {
	Store        *store.Store
	Repositories Repositories
	Sources      Sources
	Plan         Plan
	// Place returns what a source brings out as it is applied on a platform provider, with the
	// namespace of spec.input.namespace; nil: as it is rendered.
	Place     func(ctx context.Context, provider string, src *source.Source) []manifest.Object
	Workers   int           // how many previews are built at once; default 3
	Timeout   time.Duration // of one that does not say so itself; default 5 minutes
	ScanEvery time.Duration // the safety net behind the change feed; default 30 s
	Logger    *slog.Logger
	Now       func() time.Time
}

// Previewer is a component: call Run once.
type Previewer struct {
	Config
	queue background.Queue // of IDs of open commands
}

// New returns a previewer that has not started.
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

// Run answers plan previews until ctx ends, and returns when none is being built.
// What is open then is built after the next start.
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

// scan enqueues every open preview, and removes what nobody can ask for any more.
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
