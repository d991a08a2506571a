package slack

import (
	"strconv"
	"strings"
	"time"

	"github.com/slack-go/slack"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/notify"
)

// ofRollout returns the fields of events of rollouts and scalings, none for other events.
func ofRollout(n notify.Notice) []slack.AttachmentField {
	r := n.Details.Rollout
	if r == nil {
		return nil
	}
	field := func(title, value string) slack.AttachmentField {
		return slack.AttachmentField{Title: title, Value: shortened(escape(value)), Short: true}
	}
	out := []slack.AttachmentField{field("Changed By", r.ChangedBy)}
	if r.Kind == deploy.RolloutKindScaling {
		out = append(out, field("Replicas", strconv.Itoa(int(r.FromReplicas))+" to "+strconv.Itoa(int(r.ToReplicas))))
	} else {
		out = append(out, field("Images", strings.Join(r.Images, " ")), field("Images Before", strings.Join(r.ImagesBefore, " ")))
	}
	if r.CompletedAt > 0 {
		out = append(out, field("Took", r.Took().Round(time.Second).String()))
	}
	return append(out, field("Superseded By", r.SupersededBy), field("Interrupts", n.Details.Interrupts))
}
