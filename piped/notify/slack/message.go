package slack

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/slack-go/slack"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/notify"
)

// Name and colours of PipeCD's messages.
const (
	username     = "PipeCD"
	infoColor    = "#222429"
	successColor = "#629650"
	errorColor   = "#9C3C31"
	warnColor    = "#C1A337"
)

// maxText limits the text of a message, in characters.
const maxText = 3000

// titles are the titles by event type; %q is the application, the stage for events of stages,
// or the workload for rollouts without an application.
var titles = map[deploy.EventType]string{
	deploy.EventTriggered:     "Triggered a new deployment for %q",
	deploy.EventPlanned:       "Deployment for %q was planned",
	deploy.EventStarted:       "Deployment for %q was started",
	deploy.EventWaitApproval:  "Deployment for %q is waiting for an approval",
	deploy.EventApproved:      "Deployment for %q was approved",
	deploy.EventRollingBack:   "Deployment for %q is rolling back",
	deploy.EventSucceeded:     "Deployment for %q was completed successfully",
	deploy.EventFailed:        "Deployment for %q has failed",
	deploy.EventCancelled:     "Deployment for %q was cancelled",
	deploy.EventTriggerFailed: "Failed to trigger a new deployment for %q",

	deploy.EventStageStarted:   "Stage %q was started",
	deploy.EventStageSkipped:   "Stage %q was skipped",
	deploy.EventStageSucceeded: "Stage %q was completed successfully",
	deploy.EventStageFailed:    "Stage %q has failed",
	deploy.EventStageCancelled: "Stage %q was cancelled",

	deploy.EventSynced:           "%q is in sync with Git again",
	deploy.EventOutOfSync:        "%q is out of sync with Git",
	deploy.EventSelfHealStopped:  "Self-healing of %q has stopped",
	deploy.EventHeld:             "%q is held at a commit",
	deploy.EventReleased:         "%q is no longer held at a commit",
	deploy.EventHealthy:          "%q is healthy",
	deploy.EventDegraded:         "%q is degraded",
	deploy.EventRolloutStarted:   "A rollout of %q has started",
	deploy.EventRolloutEnded:     "A rollout of %q has ended",
	deploy.EventRolloutRecovered: "A failed rollout of %q has completed",
	deploy.EventScalingEnded:     "A scaling of %q has ended",
	deploy.EventPipedStarted:     "A piped has been started",
	deploy.EventPipedStopped:     "A piped has been stopped",
}

// ended reports whether t is the end of a deployment.
func ended(t deploy.EventType) bool {
	return t == deploy.EventSucceeded || t == deploy.EventFailed || t == deploy.EventCancelled
}

// compose returns the text above the attachment, which holds the mentions, and the
// attachment.
func (s *Sender) compose(n notify.Notice) (text string, a slack.Attachment) {
	accounts, groups := n.Mentioned()
	users, teams := mentions("@", s.Accounts, accounts), mentions("!subteam^", s.Groups, groups)
	a = slack.Attachment{
		Title: title(n), TitleLink: s.Page.Subject(n), Text: s.text(n), Color: color(n), MarkdownIn: []string{"text"},
		Ts: json.Number(strconv.FormatInt(n.Event.At.Unix(), 10)),
	}
	a.Fallback = a.Title
	if c := n.Commit(); c != nil && a.TitleLink == "" {
		a.TitleLink = c.URL
	}
	for _, f := range s.fields(n, users, teams) {
		if f.Value != "" {
			a.Fields = append(a.Fields, f)
		}
	}
	return strings.TrimSpace(users + " " + teams), a
}

func title(n notify.Notice) string {
	format, subject := titles[n.Event.Type], n.Subject()
	if format == "" {
		return string(n.Event.Type)
	}
	if n.Event.Type.Group() == deploy.GroupStage {
		subject = n.Event.StageID
		if n.Stage != nil {
			subject = n.Stage.Name
		}
	}
	if !strings.Contains(format, "%q") {
		return format
	}
	return escape(fmt.Sprintf(format, subject))
}

// text returns the text of the attachment. How to approve is not shortened, because it has the
// link and the command.
func (s *Sender) text(n notify.Notice) string {
	text := shortened(escape(body(n)))
	if n.Event.Type == deploy.EventWaitApproval {
		text = strings.TrimPrefix(text+"\n"+s.howToApprove(n), "\n")
	}
	return text
}

// body returns what the event says, not escaped.
func body(n notify.Notice) string {
	p := n.Details
	switch n.Event.Type {
	case deploy.EventPlanned:
		return p.Summary
	case deploy.EventApproved:
		return by("Approved by ", p.Approver)
	case deploy.EventCancelled:
		if p.Commander == "" {
			return p.Reason
		}
		return by("Cancelled by ", p.Commander)
	case deploy.EventWaitApproval:
		if n.Stage == nil {
			return ""
		}
		return n.Stage.Desc
	case deploy.EventTriggered, deploy.EventStarted, deploy.EventSucceeded,
		deploy.EventStageStarted, deploy.EventPipedStarted, deploy.EventPipedStopped:
		return ""
	case deploy.EventRolloutStarted:
		return strings.TrimSuffix(fmt.Sprintf("%s on %s. %s", workload(p), p.Cluster, p.Reason), " ")
	case deploy.EventRolloutEnded, deploy.EventRolloutRecovered, deploy.EventScalingEnded:
		return strings.TrimSuffix(fmt.Sprintf("%s on %s: %s. %s", workload(p), p.Cluster, p.Phase, p.Reason), " ")
	}
	return p.Reason
}

// howToApprove returns the link to the page and the commands to approve or reject. They contain
// the full deployment ID, because the field shows only its beginning.
func (s *Sender) howToApprove(n notify.Notice) string {
	first := "Check the deployment, then"
	if page := s.Page.Deployment(n.Event.DeploymentID); page != "" {
		first = link("Approve or reject it on the page", page) + ", or"
	}
	return fmt.Sprintf("%s run `pipectl deployment approve --deployment-id %s`, or `reject` with the same ID", first, escape(n.Event.DeploymentID))
}

// by returns text followed by a user, or "" without a user.
func by(text, who string) string {
	if who == "" {
		return ""
	}
	return text + who
}

func workload(p deploy.EventPayload) string {
	if p.Workload == nil {
		return "A workload"
	}
	return p.Workload.String()
}

// color returns the attachment's colour by the result of the event.
func color(n notify.Notice) string {
	switch n.Event.Type {
	case deploy.EventSucceeded, deploy.EventStageSucceeded, deploy.EventSynced, deploy.EventHealthy:
		return successColor
	case deploy.EventFailed, deploy.EventTriggerFailed, deploy.EventStageFailed, deploy.EventDegraded, deploy.EventSelfHealStopped:
		return errorColor
	case deploy.EventCancelled, deploy.EventStageCancelled, deploy.EventRollingBack, deploy.EventOutOfSync, deploy.EventHeld, deploy.EventWaitApproval:
		return warnColor
	case deploy.EventRolloutEnded, deploy.EventRolloutRecovered, deploy.EventScalingEnded:
		switch n.Details.Phase {
		case deploy.RolloutComplete, deploy.RolloutNoRollout:
			return successColor
		case deploy.RolloutFailed, deploy.RolloutTimedOut:
			return errorColor
		}
		return warnColor
	}
	return infoColor
}

// fields returns the same fields of the attachment as PipeCD's messages, and the commit. users
// and teams are the mentions in Slack's format, or empty.
func (s *Sender) fields(n notify.Notice, users, teams string) []slack.AttachmentField {
	short := func(title, value string) slack.AttachmentField {
		return slack.AttachmentField{Title: title, Value: value, Short: true}
	}
	project := short("Project", escape(truncated(s.ProjectID)))
	if p := n.Details.Piped; p != nil {
		return []slack.AttachmentField{short("Name", escape(p.Name)), short("Version", escape(p.Version)), project, short("Id", escape(p.ID)),
			short("Mention To Users", users), short("Mention To Groups", teams)}
	}
	application := ""
	if n.Application != nil {
		application = s.Page.Application(n.Application.ID)
	}
	out := []slack.AttachmentField{project, short("Application", link(n.ApplicationName(), application)), short("Kind", "kubernetes")}
	if id := n.Event.DeploymentID; id != "" {
		out = append(out, short("Deployment", link(truncated(id), s.Page.Deployment(id))))
	}
	if d := n.Deployment; d != nil {
		who := d.Trigger.Commander
		if who == "" {
			who = d.Trigger.Commit.Author
		}
		out = append(out, short("Triggered By", escape(who)))
	}
	if c := n.Commit(); c != nil {
		out = append(out, short("Commit", link(c.Short(), c.URL)))
	}
	out = append(out, ofRollout(n)...)
	out = append(out, short("Mention To Users", users), short("Mention To Groups", teams))
	if n.Deployment != nil {
		out = append(out, short("Started At", date(n.Deployment.CreatedAt)))
	}
	return out
}

// mentions returns a Slack mention of each ID, without duplicates.
func mentions(prefix string, lists ...[]string) string {
	var out []string
	for _, id := range slices.Concat(lists...) {
		if m := "<" + prefix + escape(id) + ">"; !slices.Contains(out, m) {
			out = append(out, m)
		}
	}
	return strings.Join(out, " ")
}

func link(text, url string) string {
	if url == "" {
		return escape(text)
	}
	return "<" + url + "|" + escape(text) + ">"
}

func date(t time.Time) string {
	return fmt.Sprintf("<!date^%d^{date_num} {time_secs}|%s>", t.Unix(), t.UTC().Format(time.RFC3339))
}

// truncated returns an ID shortened as in PipeCD, not escaped.
func truncated(id string) string {
	if len(id) <= 8 {
		return id
	}
	return id[:8] + "..."
}

func shortened(text string) string {
	if r := []rune(text); len(r) > maxText {
		return string(r[:maxText]) + "…"
	}
	return text
}

// escape returns text that Slack shows literally, without mentions and links.
func escape(text string) string {
	return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;").Replace(text)
}
