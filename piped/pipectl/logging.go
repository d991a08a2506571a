package pipectl

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// logging configures the messages for users.
type logging struct {
	level    string
	encoding string
}

// register adds the telemetry flags of PipeCD's pipectl. Flags without effect on a
// client are hidden.
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

// info and warn write a message with details, alternating keys and values, in the
// format of PipeCD's pipectl: a tab and JSON after the message.
func (l *logger) info(message string, details ...string) {
	if !l.quiet {
		l.write("INFO", message, details...)
	}
}

// infoCounts is info with the counts n and m under the keys first and second. They are
// strings if the log is JSON, else numbers.
func (l *logger) infoCounts(message, first string, n int, second string, m int) {
	if l.quiet {
		return
	}
	if l.json {
		l.write("INFO", message, first, fmt.Sprint(n), second, fmt.Sprint(m))
		return
	}
	fmt.Fprintf(l.out, "%s\t{%q: %d, %q: %d}\n", message, first, n, second, m)
}

func (l *logger) warn(message string, details ...string) { l.write("WARNING", message, details...) }

func (l *logger) errorf(format string, args ...any) {
	l.write("ERROR", fmt.Sprintf(format, args...))
}

func (l *logger) write(severity, message string, details ...string) {
	if !l.json {
		fmt.Fprintln(l.out, message+tabbed(details))
		return
	}
	head := []string{"severity", severity, "eventTime", time.Now().Format(time.RFC3339Nano), "message", message}
	fmt.Fprintln(l.out, object(append(head, details...), ":", ","))
}

// tabbed formats details after a message for users.
func tabbed(details []string) string {
	if len(details) == 0 {
		return ""
	}
	return "\t" + object(details, ": ", ", ")
}

// object encodes alternating keys and values as a JSON object in that order.
func object(pairs []string, colon, comma string) string {
	var fields []string
	for i := 0; i+1 < len(pairs); i += 2 {
		key, _ := json.Marshal(pairs[i]) // cannot fail for strings
		value, _ := json.Marshal(pairs[i+1])
		fields = append(fields, string(key)+colon+string(value))
	}
	return "{" + strings.Join(fields, comma) + "}"
}
