package pipectl

import (
	"context"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// tool is the shared configuration of all commands: the connection and the output.
type tool struct {
	conn            connection
	logs            logging
	output          string
	now             func() time.Time
	flags           *pflag.FlagSet
	dirs            []string       // where a running agent may have published its address
	given           *pflag.FlagSet // flags of the running command; nil during shell completion
	settingsApplied bool
}

func (t *tool) register(flags *pflag.FlagSet) {
	t.flags = flags
	t.conn.register(flags)
	t.logs.register(flags)
	flags.StringVarP(&t.output, "output", "o", "",
		"The output format. PipeCD's own commands print json by default, the others tables. (table|json|yaml) [PIPECTL_OUTPUT]")
}

// dial connects to the agent and replaces names in the command's flags by IDs. The
// caller closes the client.
func (t *tool) dial(ctx context.Context) (*client, error) {
	if err := t.applySettings(); err != nil {
		return nil, err
	}
	if err := t.useLogin(); err != nil {
		return nil, err
	}
	c, err := t.conn.dial(ctx)
	if err != nil || t.given == nil {
		return c, err
	}
	if err := resolve(ctx, c, t.given); err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

// printer returns the printer for cmd's answers, in the format that the user selected,
// else in otherwise. Enums are names if otherwise is formatTable, as for piped's own
// commands, and numbers for PipeCD's. more are additional formats of cmd.
func (t *tool) printer(cmd *cobra.Command, otherwise string, more ...string) (*printer, error) {
	if err := t.applySettings(); err != nil {
		return nil, err
	}
	names := otherwise == formatTable
	if otherwise == formatTerminal {
		otherwise = formatJSON
		if newScreen(cmd.OutOrStdout()).tty {
			otherwise = formatTable
		}
	}
	format := t.output
	if format == "" {
		format = otherwise
	}
	if err := checkFormat(format, more...); err != nil {
		return nil, err
	}
	return &printer{screen: newScreen(cmd.OutOrStdout()), format: format, names: names, now: t.now()}, nil
}

// live returns what a command needs to show continuous updates; the caller closes the
// client.
func (t *tool) live(cmd *cobra.Command) (p *printer, log *logger, c *client, err error) {
	if p, err = t.printer(cmd, formatTable); err != nil {
		return nil, nil, nil, err
	}
	if log, err = t.logs.logger(cmd); err != nil {
		return nil, nil, nil, err
	}
	c, err = t.dial(cmd.Context())
	return p, log, c, err
}

// query connects, makes one call and prints the answer, in the given format unless the
// user selects another.
func query[R any](cmd *cobra.Command, t *tool, format string, call func(context.Context, *client) (R, error), text func(*printer, R) error) error {
	p, err := t.printer(cmd, format)
	if err != nil {
		return err
	}
	resp, err := ask(cmd, t, call)
	if err != nil {
		return err
	}
	return p.print(resp, func(p *printer) error { return text(p, resp) })
}

// ask connects and makes one call.
func ask[R any](cmd *cobra.Command, t *tool, call func(context.Context, *client) (R, error)) (R, error) {
	var none R
	c, err := t.dial(cmd.Context())
	if err != nil {
		return none, err
	}
	defer c.close()
	ctx, cancel := context.WithTimeout(cmd.Context(), callTimeout)
	defer cancel()
	return call(ctx, c)
}
