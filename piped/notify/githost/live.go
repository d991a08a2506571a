package githost

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/c785c783/piped/piped/deploy"
)

// maxRows limits how many applications a comment lists.
const maxRows = 200

// newest returns the newest deployment of each application, sorted by application name.
func newest(of []deploy.Deployment) []deploy.Deployment {
	byApp := map[string]deploy.Deployment{}
	for _, d := range of {
		known, ok := byApp[d.ApplicationID]
		if !ok || d.CreatedAt.After(known.CreatedAt) || d.CreatedAt.Equal(known.CreatedAt) && d.ID > known.ID {
			byApp[d.ApplicationID] = d
		}
	}
	var out []deploy.Deployment
	for _, d := range byApp {
		out = append(out, d)
	}
	slices.SortFunc(out, func(a, b deploy.Deployment) int {
		return cmp.Or(strings.Compare(a.ApplicationName, b.ApplicationName), strings.Compare(a.Git.ConfigPath(), b.Git.ConfigPath()))
	})
	return out
}

// liveText returns the comment of a merged pull request: a headline and a row for each
// application, first those without a deployment. A row links to the deployment, or to the
// application without one. The commit counts as live only if it is live in all of them.
func (c comments) liveText(ctx context.Context, commit deploy.Commit, of []deploy.Deployment, without []missing) (string, error) {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n### %s\n\n| application | environment | state | rollout |\n|---|---|---|---|\n", c.marker(), headline(commit, of, len(without)))
	all := len(of) + len(without)
	for _, m := range without[:min(len(without), maxRows/2)] {
		label, err := c.label(ctx, m.app.Name, m.app.Git)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&b, "| %s |  | %s |  |\n", linked(code(label), c.Page.Application(m.app.ID)), m.state)
	}
	shown := min(len(without), maxRows/2)
	for _, d := range of[:min(len(of), maxRows-shown)] {
		label, err := c.label(ctx, d.ApplicationName, d.Git)
		if err != nil {
			return "", err
		}
		state, rollout := liveStates[d.Status], ""
		switch d.Status {
		case deploy.Success:
			if rollout, err = c.rolloutTime(ctx, d.ID); err != nil {
				return "", err
			}
		case deploy.Failure, deploy.Cancelled:
			state += ": " + code(d.StatusReason)
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", linked(code(label), c.Page.Deployment(d.ID)), environmentLink(d), state, rollout)
	}
	if shown += min(len(of), maxRows-shown); shown < all {
		fmt.Fprintf(&b, "\nand %d more\n", all-shown)
	}
	return b.String(), nil
}

// liveStates describes the status of a deployment.
var liveStates = map[deploy.Status]string{
	deploy.Pending: "waiting", deploy.Planned: "waiting", deploy.Running: "rolling out", deploy.RollingBack: "rolling back",
	deploy.Success: "**live**", deploy.Failure: "failed", deploy.Cancelled: "cancelled",
}

// headline summarizes the deployments; without is the number of applications without one.
func headline(commit deploy.Commit, of []deploy.Deployment, without int) string {
	all := len(of) + without
	live, ended := 0, 0
	for _, d := range of {
		if d.Status == deploy.Success {
			live++
		}
		if d.Status.Completed() {
			ended++
		}
	}
	name := code(commit.Short())
	switch {
	case ended < len(of):
		return fmt.Sprintf("%s is being rolled out: %d of %d applications are done", name, ended, all)
	case live == all:
		return name + " is live"
	case live == 0:
		return name + " is not live"
	}
	return fmt.Sprintf("%s is live in %d of %d applications", name, live, all)
}

// environmentLink returns the Markdown of a deployment's environment, followed by its
// URL if there is one.
func environmentLink(d deploy.Deployment) string {
	text := code(environment(&d))
	if url := d.Metadata[deploy.MetaEnvironmentURL]; url != "" {
		text += " <" + strings.NewReplacer("|", "%7C", "<", "%3C", ">", "%3E", " ", "%20").Replace(url) + ">"
	}
	return text
}
