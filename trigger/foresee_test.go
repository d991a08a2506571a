package trigger

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/git/gittest"
)

// TestForesee states which applications a merge concerns, and how.
func TestForesee(t *testing.T) {
	l := newEnv(t, func(l *env, _ *Config) {
		l.config.Discover = &config.Discover{Paths: patterns(t, "apps", "late")}
	})
	l.push("begin", map[string]string{
		"apps/web/app.pipecd.yaml":      appFile("web", "  trigger: {onCommit: {paths: [shared/**], ignores: [apps/web/*.md]}}"),
		"apps/db/app.pipecd.yaml":       appFile("db"),
		"apps/gone/app.pipecd.yaml":     appFile("gone"),
		"apps/silent/app.pipecd.yaml":   appFile("silent", "  trigger: {onCommit: {disabled: true}}"),
		"apps/disabled/app.pipecd.yaml": appFile("disabled"),
		"apps/deleted/app.pipecd.yaml":  appFile("deleted"),
		"apps/broken/app.pipecd.yaml":   appFile("broken"),
		"others/app.pipecd.yaml":        appFile("others"),
	})
	must(t, l.store.SetDisabled(t.Context(), appID("apps/disabled"), true))
	must(t, l.store.DeleteApplication(t.Context(), appID("apps/deleted")))
	touchAll := map[string]string{}
	for _, dir := range []string{"db", "silent", "disabled", "deleted", "broken"} {
		touchAll["apps/"+dir+"/x.yaml"] = "x"
	}
	cases := map[string]struct {
		files  map[string]string
		remove []string
		want   []string // directory, and how it is concerned
	}{
		"nothing of an application":     {files: map[string]string{"readme": "x"}},
		"a path that one names":         {files: map[string]string{"shared/a/b": "x"}, want: []string{"apps/web"}},
		"a path that it ignores":        {files: map[string]string{"apps/web/readme.md": "x"}},
		"all, as far as they are there": {files: touchAll, want: []string{"apps/broken", "apps/db"}},
		"one that is added": {files: map[string]string{"apps/new/app.pipecd.yaml": appFile("new", "  labels: {a: b}")},
			want: []string{"apps/new new"}},
		"one that is added elsewhere": {files: map[string]string{"elsewhere/app.pipecd.yaml": appFile("new")}},
		"one that is added and not deployed by commits": {
			files: map[string]string{"apps/new/app.pipecd.yaml": appFile("new", "  trigger: {onCommit: {disabled: true}}")}},
		"one that is added and cannot be used": {files: map[string]string{"apps/new/app.pipecd.yaml": appFile("new", "  timeout: nonsense")},
			want: []string{"apps/new new problem"}},
		"one that cannot be used any more": {files: map[string]string{"apps/broken/app.pipecd.yaml": appFile("broken", "  timeout: nonsense")},
			want: []string{"apps/broken problem"}},
		"some that are removed": {remove: []string{"apps/gone", "apps/disabled/app.pipecd.yaml", "apps/deleted", "others"},
			want: []string{"apps/gone removed"}},
		"a provider that is not there": {files: map[string]string{"apps/db/app.pipecd.yaml": appFile("db", "  platformProvider: other")},
			want: []string{"apps/db problem"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			commit, err := l.upstream.CommitOn("pr-"+appID(name)[:8], name, func(r *gittest.Repo) error {
				if len(c.remove) > 0 {
					return r.Remove(c.remove...)
				}
				return r.Write(c.files)
			})
			must(t, err)
			m, err := l.trigger.watchers["apps"].repo.Git.Merge(t.Context(), "pr-"+appID(name)[:8], commit)
			must(t, err)
			defer m.Close()
			affected, err := l.trigger.Foresee(t.Context(), "apps", m)
			must(t, err)
			var got []string
			for _, a := range affected {
				how := a.Application.Git.Dir
				if a.Application.CreatedAt.IsZero() {
					how += " new"
				}
				if a.Problem != nil {
					how += " problem"
				}
				if a.Removed {
					how += " removed"
				}
				got = append(got, how)
				if a.Application.ID != appID(a.Application.Git.Dir) || a.Application.Name == "" || a.Problem == nil && a.Application.Provider != "local" {
					t.Errorf("described as %+v", a.Application)
				}
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
	if _, err := l.trigger.Foresee(t.Context(), "nowhere", nil); !deploy.IsKind(err, deploy.Invalid) {
		t.Errorf("of a repository that is not watched: %v", err)
	}
}
