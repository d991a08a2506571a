package pullpreview

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/githost"
)

// report is what was reported of a preview.
type report struct {
	commit  string
	comment string
	phase   phase
	url     string
	summary string
}

// environment returns the name of the environment of a pull request.
func environment(number int) string { return fmt.Sprintf("preview/pr-%d", number) }

// marker returns the invisible text that identifies this agent's comments about previews.
func (p *Previewer) marker() string {
	return "<!-- piped preview " + strings.ReplaceAll(p.Agent, "--", "- -") + " -->"
}

// report reports the state of a preview to the Git host, unless it is reported already. It is
// idempotent: after a restart the comment is compared with what it should be.
func (p *Previewer) report(ctx context.Context, r Repository, pr githost.OpenRequest, state preview) error {
	id := pullRequest{r.ID, pr.Number}
	next := report{commit: pr.Commit, comment: p.comment(pr, state), phase: state.phase(), url: state.url(), summary: state.summary()}
	if p.reported[id] == next {
		return nil
	}
	var errs []error
	if r.Reports.Comments {
		errs = append(errs, r.Host.UpsertComment(ctx, r.Remote, pr.Number, p.marker(), next.comment))
	}
	if r.Reports.CommitStatus {
		errs = append(errs, r.Host.SetStatus(ctx, r.Remote, pr.Commit, githost.Status{
			Context: r.Reports.ContextPrefix + "/preview", State: statusOf[next.phase], Description: next.summary, TargetURL: next.url,
		}))
	}
	if r.Reports.Deployments {
		errs = append(errs, r.Host.SetDeployment(ctx, r.Remote, githost.Deployed{
			ID: fmt.Sprintf("preview %d %s", pr.Number, pr.Commit), Commit: pr.Commit, Environment: environment(pr.Number),
			State: environmentOf[next.phase], Description: next.summary, URL: next.url,
		}))
	}
	err := errors.Join(errs...)
	if err == nil {
		p.reported[id] = next
	}
	return err
}

var (
	statusOf      = map[phase]githost.State{building: githost.StateRunning, ready: githost.StateSuccess, failed: githost.StateFailure}
	environmentOf = map[phase]githost.DeploymentState{building: githost.DeploymentInProgress, ready: githost.DeploymentSuccess, failed: githost.DeploymentFailure}
)

// reportRemoved reports that a preview is gone. A comment is only edited.
func (p *Previewer) reportRemoved(ctx context.Context, r Repository, number int, head, why string) error {
	var errs []error
	if r.Reports.Comments {
		body := fmt.Sprintf("%s\n### Preview: removed\n\nNothing of it is left in the cluster: %s.\n", p.marker(), why)
		errs = append(errs, r.Host.EditComment(ctx, r.Remote, number, p.marker(), body))
	}
	if r.Reports.CommitStatus {
		if head != "" {
			errs = append(errs, r.Host.SetStatus(ctx, r.Remote, head, githost.Status{
				Context: r.Reports.ContextPrefix + "/preview", State: githost.StateSuccess, Description: "removed: " + why,
			}))
		}
	}
	if r.Reports.Deployments {
		errs = append(errs, r.Host.EndEnvironment(ctx, r.Remote, environment(number), "removed: "+why))
	}
	return errors.Join(errs...)
}

// headOf returns the head of the pull request that was reported last, "" if none was.
func headOf(apps []deploy.Application, known deploy.PullPreview) string {
	if known.Head != "" {
		return known.Head
	}
	var last *deploy.DeploymentRef
	for _, app := range apps {
		if t := app.LastTriggered; t != nil && (last == nil || t.StartedAt.After(last.StartedAt)) {
			last = t
		}
	}
	if last == nil {
		return ""
	}
	return last.Trigger.Commit.Merged
}

// url returns where a ready preview is, "" for every other one and without a host.
func (s preview) url() string {
	if s.phase() != ready {
		return ""
	}
	for _, a := range s.apps {
		if a.host != "" {
			return "https://" + a.host
		}
	}
	return ""
}

// summary describes the preview in one line.
func (s preview) summary() string {
	switch {
	case s.problem != nil:
		return "failed: " + s.problem.Error()
	case s.waits != "":
		return "waiting: " + s.waits
	}
	now := s.phase()
	for _, a := range s.apps {
		if a.phase == now && now != ready {
			return fmt.Sprintf("%s: %s: %s", now, a.app.Name, a.text)
		}
	}
	return "ready: every rollout is complete"
}

// comment returns the text of the comment of a pull request.
func (p *Previewer) comment(pr githost.OpenRequest, s preview) string {
	var b strings.Builder
	now := s.phase()
	fmt.Fprintf(&b, "%s\n### Preview: %s\n\nOf `%s` merged into `%s`.\n", p.marker(), now, deploy.ShortHash(pr.Commit), pr.Base)
	if s.problem != nil {
		fmt.Fprintf(&b, "\nIt cannot be updated: %s\n", s.problem)
	}
	if s.waits != "" {
		fmt.Fprintf(&b, "\nIt waits: %s.\n", s.waits)
	}
	if len(s.apps) > 0 {
		b.WriteString("\n| application | state | |\n|---|---|---|\n")
	}
	for _, a := range s.apps {
		name := "`" + a.app.Name + "`"
		if page := p.Page(a.id); a.id != "" && page != "" {
			name = "[" + name + "](" + page + ")"
		}
		text := cell(a.text)
		if now == ready { // a link before all of it works would lie
			text = a.entry()
		}
		fmt.Fprintf(&b, "| %s | **%s** | %s |\n", name, a.phase, text)
	}
	if now == ready {
		b.WriteString(s.requests())
	}
	for _, a := range s.apps {
		b.WriteString(a.left())
	}
	for _, a := range s.apps {
		if len(a.log) > 0 {
			fmt.Fprintf(&b, "\n<details><summary>Last lines of <code>%s</code></summary>\n\n%s\n</details>\n", a.app.Name, fenced(a.log))
		}
	}
	return cut(b.String())
}

// entry returns how a ready preview is reached, "" if that is not known.
func (a appState) entry() string {
	var ways []string
	if a.host != "" {
		ways = append(ways, "<https://"+a.host+">")
	}
	if a.route.Header != "" {
		to := ""
		if len(a.route.Hostnames) > 0 {
			to = " to `" + strings.Join(a.route.Hostnames, "`, `") + "`"
		}
		ways = append(ways, fmt.Sprintf("requests%s with the header `%s`", to, a.route.Header))
	}
	return strings.Join(ways, ", and ")
}

// requests returns the commands that send a request with the header, one for each host.
func (s preview) requests() string {
	var lines []string
	for _, a := range s.apps {
		if line := deploy.Curl(a.route.Header, a.route.Hostnames); line != "" && !slices.Contains(lines, line) {
			lines = append(lines, line)
		}
	}
	if len(lines) == 0 {
		return ""
	}
	return "\n" + fenced(lines)
}

// maxShared is how many changes that a preview does not have are listed.
const maxShared = 20

// left lists the changes of the pull request that a preview next to its application does not have.
func (a appState) left() string {
	if len(a.route.Shared) == 0 {
		return ""
	}
	var b strings.Builder
	fmt.Fprintf(&b, "\nNot in the preview `%s`:\n\n", a.app.Name)
	for i, line := range a.route.Shared {
		if i == maxShared {
			fmt.Fprintf(&b, "* and %d more\n", len(a.route.Shared)-i)
			break
		}
		fmt.Fprintf(&b, "* %s\n", cell(line))
	}
	return b.String()
}

// cell returns text for one cell of a table.
func cell(text string) string {
	return strings.NewReplacer("\n", " ", "|", "\\|", "<", "&lt;", "@", "@\u200b").Replace(text)
}

// fenced returns lines as a block of code that none of them can end.
func fenced(lines []string) string {
	fence := "```"
	text := strings.Join(lines, "\n")
	for strings.Contains(text, fence) {
		fence += "`"
	}
	return fence + "\n" + text + "\n" + fence + "\n"
}

// cut truncates a comment to what hosts accept.
func cut(text string) string {
	const limit = githost.MaxComment - 100
	if len(text) <= limit {
		return text
	}
	return strings.ToValidUTF8(text[:limit], "") + "\n\n(truncated)\n"
}
