package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/c785c783/piped/piped/build"
	"github.com/c785c783/piped/piped/pipectl"
)

// leaves calls visit for every command below cmd that does something.
func leaves(cmd *cobra.Command, visit func(*cobra.Command)) {
	for _, c := range cmd.Commands() {
		switch {
		case !c.IsAvailableCommand() || c.Name() == "help":
		case c.HasSubCommands():
			leaves(c, visit)
		default:
			visit(c)
		}
	}
}

// client returns pipectl's command line.
func client() *cobra.Command {
	root := pipectl.Command(build.Info{})
	root.InitDefaultCompletionCmd()
	return root
}

func path(cmd *cobra.Command) string { return strings.TrimPrefix(cmd.CommandPath(), "pipectl ") }

// commandTable returns one row for each command of pipectl.
func commandTable() string {
	var rows [][]string
	leaves(client(), func(c *cobra.Command) {
		name := "`" + path(c) + "`"
		if pipectl.InPipeCD(c) {
			name += " °"
		}
		rows = append(rows, []string{name, strings.TrimSuffix(c.Short, ".")})
	})
	return table([]string{"command", "does"}, rows)
}

// commandReference returns a section for each command of pipectl, with its flags.
func commandReference() string {
	var b strings.Builder
	root := client()
	leaves(root, func(c *cobra.Command) {
		if strings.HasPrefix(path(c), "completion ") { // cobra's own; see --help
			return
		}
		fmt.Fprintf(&b, "### `pipectl %s`\n\n%s\n\n", path(c), description(c))
		if c.Example != "" {
			fmt.Fprintf(&b, "```sh\n%s\n```\n\n", strings.ReplaceAll(c.Example, "\n  ", "\n")[2:])
		}
		if rows := flagRows(c.LocalNonPersistentFlags()); len(rows) > 0 {
			b.WriteString(table([]string{"flag", "type", "default", "meaning"}, rows) + "\n")
		}
	})
	fmt.Fprintf(&b, "### Flags of all commands\n\n%s", table([]string{"flag", "type", "default", "meaning"}, flagRows(root.PersistentFlags())))
	return b.String()
}

// description returns what a command does. Its indented lines are a block of text.
func description(c *cobra.Command) string {
	text := c.Long
	if text == "" {
		return c.Short
	}
	var out []string
	block := false
	for _, line := range strings.Split(text, "\n") {
		indented := strings.HasPrefix(line, "  ")
		if indented != block && line != "" {
			out = append(out, "```")
			if block {
				out = append(out, "")
			}
			block = indented
		}
		out = append(out, line)
	}
	if block {
		out = append(out, "```")
	}
	return strings.ReplaceAll(strings.Join(out, "\n"), "\n\n```\n\n", "\n```\n\n")
}

func flagRows(set *pflag.FlagSet) (rows [][]string) {
	set.VisitAll(func(f *pflag.Flag) {
		if f.Hidden || f.Name == "help" {
			return
		}
		name, usage := pflag.UnquoteUsage(f)
		if name == "" {
			name = f.Value.Type()
		}
		value := ""
		if f.DefValue != "" && f.DefValue != "[]" {
			value = "`" + f.DefValue + "`"
		}
		if pipectl.Required(f) {
			value = "required"
		}
		rows = append(rows, []string{"`--" + f.Name + "`", name, value, usage})
	})
	return rows
}
