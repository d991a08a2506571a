package app

import (
	"context"

	"github.com/c785c783/piped/executor/analysis"
	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/config/strict"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/source/render"
)

// configurations reads the configurations in effect. It implements control.Configurations here,
// because it joins the agent's settings with the repositories of this package.
type configurations struct {
	live    *live
	commits previews
	kinds   config.Kinds
}

// AgentConfig implements control.Configurations.
func (c configurations) AgentConfig() (out deploy.EffectiveConfig) {
	out.LoadedAt, out.Error = c.live.configuration.get()
	if cfg := c.live.effective.Load(); cfg != nil {
		out.YAML = cfg.Effective()
	}
	return out
}

// ApplicationConfig implements control.Configurations. It reads the mirror.
func (c configurations) ApplicationConfig(ctx context.Context, app deploy.Application) (out deploy.EffectiveConfig, err error) {
	commit, err := c.commits.commit(ctx, app.Git.RepoID, "")
	if err != nil {
		return out, err
	}
	out.Commit, out.Path = commit.Hash, app.Git.ConfigPath()
	defer func() {
		if cause := recover(); cause != nil { // caused by the content of the file
			out.YAML, out.Error, err = "", "internal error while reading it; please report it with the file", nil
		}
	}()
	tree, err := c.live.repositories.Tree(app.Git.RepoID, commit.Hash)
	if err != nil {
		return out, err
	}
	data, err := render.ReadFile(tree, out.Path, strict.MaxSize)
	if deploy.IsKind(err, deploy.NotFound) || deploy.IsKind(err, deploy.Invalid) {
		out.Error = err.Error()
		return out, nil
	}
	if err != nil {
		return out, err
	}
	templates, err := analysis.ReadTemplates(tree)
	if err != nil {
		out.Warnings = append(out.Warnings, "analysis templates are not filled in: "+err.Error())
	}
	text, parsed, err := c.kinds.EffectiveApplication(out.Path, data, app, &templates)
	if err != nil {
		out.Error = err.Error()
		return out, nil
	}
	out.YAML = text
	out.Warnings = append(append(out.Warnings, parsed.Warnings...), parsed.Unread...)
	return out, nil
}
