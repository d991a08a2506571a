package pipectl

import (
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// printJSON writes a message as the real pipectl does: encoding/json of the
// generated struct, not protojson, on one line.
func printJSON(cmd *cobra.Command, message any) error {
	data, err := json.Marshal(message)
	if err != nil {
		return fmt.Errorf("failed to marshal the response: %w", err)
	}
	_, err = fmt.Fprintln(cmd.OutOrStdout(), string(data))
	return err
}

// logging says how messages for a person are written.
type logging struct {
	level    string
	encoding string
}

// register adds the real pipectl's flags for telemetry. Those that mean nothing
// to a client are accepted and hidden.
func (l *logging) register(flags *pflag.FlagSet) {
	flags.StringVar(&l.level, "log-level", "info", "The minimum level of messages. (debug|info|warn|error)")
	flags.StringVar(&l.encoding, "log-encoding", "humanize", "How messages are written. (humanize|console|json)")
	flags.Bool("metrics", true, "")
	flags.Bool("profile", false, "")
	flags.Bool("profile-debug-logging", false, "")
	flags.String("profiler-credentials-file", "", "")
	for _, name := range []string{"metrics", "profile", "profile-debug-logging", "profiler-credentials-file"} {
		flags.Lookup(name).Hidden = true
	}
}

// logger writes messages to stderr.
type logger struct {
	out   io.Writer
	json  bool
	quiet bool // only errors
}

func (l *logging) logger(cmd *cobra.Command) (*logger, error) {
	log := &logger{out: cmd.ErrOrStderr()}
	switch l.encoding {
	case "humanize", "console":
	case "json":
		log.json = true
	default:
		return nil, hint(fmt.Errorf("unknown log encoding %q", l.encoding), "--log-encoding is humanize, console or json")
	}
	switch l.level {
	case "debug", "info":
	case "warn", "error":
		log.quiet = true
	default:
		return nil, hint(fmt.Errorf("unknown log level %q", l.level), "--log-level is debug, info, warn or error")
	}
	return log, nil
}

func (l *logger) infof(format string, args ...any) {
	if !l.quiet {
		l.write("INFO", fmt.Sprintf(format, args...))
	}
}

func (l *logger) errorf(format string, args ...any) {
	l.write("ERROR", fmt.Sprintf(format, args...))
}

func (l *logger) write(severity, message string) {
	if !l.json {
		fmt.Fprintln(l.out, message)
		return
	}
	line, err := json.Marshal(struct {
		Severity  string `json:"severity"`
		EventTime string `json:"eventTime"`
		Message   string `json:"message"`
	}{severity, time.Now().Format(time.RFC3339Nano), message})
	if err == nil { // three strings always encode
		fmt.Fprintln(l.out, string(line))
	}
}
