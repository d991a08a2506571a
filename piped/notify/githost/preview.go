package githost

import (
	"fmt"
	"strings"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/githost"
)

// Limits of a preview's text, in bytes.
const (
	previewRoom = githost.MaxComment - 4<<10 // all applications together
	maxSummary  = 300
	maxProblem  = 2 << 10
	minDiff     = 256 // a diff is omitted if less room is left
)

// previewText returns the comment of an open pull request. Its heading links to page, the
// address of the preview, unless that is "".
func previewText(marker, page string, asked deploy.PlanPreviewRequest, p deploy.PlanPreview) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n### %s of %s into %s\n\n", marker, linked("Plan preview", page), code(deploy.ShortHash(asked.HeadCommit)), code(asked.BaseBranch))
	switch {
	case p.Error != "":
		b.WriteString("The preview could not be built:\n\n" + fenced("", clip(p.Error, maxProblem)))
	case len(p.Results) == 0:
		b.WriteString("No application would be deployed.\n")
	}
	for i, a := range p.Results {
		left := previewRoom - b.Len()
		if left < 2<<10 {
			fmt.Fprintf(&b, "\nand %d more applications (omitted: the comment is at its size limit)\n", len(p.Results)-i)
			break
		}
		b.WriteString(applicationText(a, left/(len(p.Results)-i)))
	}
	return b.String()
}

// applicationText returns the preview of one application. Details take at most room
// bytes; the heading is always included.
func applicationText(a deploy.ApplicationPreview, room int) string {
	head := fmt.Sprintf("**%s** in %s", code(a.Name), code(a.Dir))
	switch {
	case a.Error != "":
		return head + ": the preview failed\n\n" + fenced("", clip(a.Error, min(room, maxProblem))) + "\n"
	case a.NoChange:
		return head + ": nothing would change\n\n"
	}
	head += fmt.Sprintf(": %s, %s\n\n", a.Strategy, code(clip(a.Summary, maxSummary)))
	if a.Details == "" || room < minDiff {
		return head
	}
	return head + "<details><summary>difference</summary>\n\n" + fenced("diff", clip(a.Details, room-minDiff)) + "\n</details>\n\n"
}
