package main

import (
	"fmt"
	"os"
	"strings"
	"text/tabwriter"
	"time"
	"unicode/utf8"
)

// The colours, as terminals know them.
const (
	plain  = ""
	bold   = "1"
	dim    = "2"
	red    = "31"
	green  = "32"
	yellow = "33"
	cyan   = "36"
)

// lineWidth is where long texts are broken.
const lineWidth = 120

// narrator writes the story in short aligned lines.
type narrator struct {
	out    *os.File
	colour bool
}

// newNarrator uses colour only on a terminal, and not if NO_COLOR is set.
func newNarrator(out *os.File) *narrator {
	info, err := out.Stat()
	terminal := err == nil && info.Mode()&os.ModeCharDevice != 0
	return &narrator{out: out, colour: terminal && os.Getenv("NO_COLOR") == ""}
}

func (n *narrator) paint(colour, text string) string {
	if !n.colour || colour == plain {
		return text
	}
	return "\x1b[" + colour + "m" + text + "\x1b[0m"
}

func (n *narrator) heading(title string) {
	fmt.Fprintf(n.out, "\n%s\n", n.paint(bold, title))
}

func (n *narrator) gap() { fmt.Fprintln(n.out) }

func (n *narrator) note(format string, args ...any) {
	fmt.Fprintf(n.out, "   %s\n", fmt.Sprintf(format, args...))
}

func (n *narrator) good(format string, args ...any) {
	fmt.Fprintf(n.out, "   %s %s\n", n.paint(green, "ok"), fmt.Sprintf(format, args...))
}

func (n *narrator) bad(text string) {
	n.wrapped("   "+n.paint(red, "not as it should be:")+" ", 24, text, red)
}

func (n *narrator) fact(name, value string) {
	fmt.Fprintf(n.out, "   %s%s\n", n.paint(dim, fmt.Sprintf("%-13s", name)), value)
}

func (n *narrator) command(text string) {
	fmt.Fprintf(n.out, "   %s\n", n.paint(cyan, "$ "+text))
}

func (n *narrator) output(line string) {
	fmt.Fprintf(n.out, "   %s %s\n", n.paint(dim, "|"), line)
}

// event prints one step of a deployment: when, whose, what and why. A line of a
// log is cut short: what matters of it is in the reason of the status.
func (n *narrator) event(e event) {
	since := time.UnixMilli(e.atMs).Sub(e.view.zero)
	const names = 13 // an application
	head := n.paint(dim, fmt.Sprintf("%8s", "+"+seconds(since))) + fmt.Sprintf("  %-*s", names, e.view.deployment.ApplicationName)
	const words = 23 // a status, or a stage of at most 20 letters
	const indent = 8 + 2 + names + words
	if !e.log {
		n.wrapped(head+n.paint(statusColour(e.word), fmt.Sprintf("%-*s", words, e.word)), indent, e.text, plain)
		return
	}
	colour := dim
	if e.bad {
		colour = red
	}
	lines := wrap(e.text, lineWidth-indent)
	if len(lines) > 1 {
		lines[0] += " ..."
	}
	fmt.Fprintln(n.out, head+n.paint(dim, fmt.Sprintf("  %-*s", words-2, e.word))+n.paint(colour, lines[0]))
}

func statusColour(status string) string {
	switch status {
	case "SUCCESS", "SYNCED":
		return green
	case "FAILURE", "CANCELLED":
		return red
	case "ROLLING_BACK", "OUT_OF_SYNC":
		return yellow
	}
	return bold
}

// wrapped writes a text after a head, further lines indented.
func (n *narrator) wrapped(head string, indent int, text, colour string) {
	for i, line := range wrap(text, lineWidth-indent) {
		if i > 0 {
			head = strings.Repeat(" ", indent)
		}
		fmt.Fprintln(n.out, strings.TrimRight(head+n.paint(colour, line), " "))
	}
}

// wrap breaks a text between words into lines of at most width characters; a
// longer word has a line of its own.
func wrap(text string, width int) []string {
	lines := []string{""}
	for _, word := range strings.Fields(text) {
		last := &lines[len(lines)-1]
		switch {
		case *last == "":
			*last = word
		case utf8.RuneCountInString(*last)+1+utf8.RuneCountInString(word) > width:
			lines = append(lines, word)
		default:
			*last += " " + word
		}
	}
	return lines
}

// table writes rows in aligned columns; the last one holds statuses.
func (n *narrator) table(rows [][]string) {
	w := tabwriter.NewWriter(n.out, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		last := len(row) - 1
		fmt.Fprintf(w, "   %s\t%s\n", strings.Join(row[:last], "\t"), n.paint(statusColour(row[last]), row[last]))
	}
	w.Flush()
}

// seconds shows a duration with two decimals.
func seconds(d time.Duration) string { return fmt.Sprintf("%.2fs", d.Seconds()) }
