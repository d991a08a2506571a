package pipectl

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/c785c783/piped/piped/pipectl/signin"
)

func newLoginLink(t *tool) *cobra.Command {
	var o loginOptions
	var path string
	cmd := &cobra.Command{
		Use:   "login-link",
		Short: "Print an address that signs a browser in once, as the holder of the API key.",
		Long: `Print an address that signs a browser in once, as the holder of the API key. It can be
used for ten minutes, and by anybody who has it: do not pass it on.`,
		RunE: func(cmd *cobra.Command, _ []string) error { return loginLink(cmd, t, o, path) },
	}
	flags := cmd.Flags()
	flags.StringVar(&o.web, "web-address", "", "The address of the agent's web server: its access.externalURL, such as https://piped.example.com. Empty means that of the last sign-in. [PIPECTL_WEB_ADDRESS]")
	flags.StringVar(&path, "path", "/", "The path of the page that the address leads to, such as /applications/web.")
	return required(cmd)
}

// loginLink prints the link alone, so that scripts can read it.
func loginLink(cmd *cobra.Command, t *tool, o loginOptions, path string) error {
	if err := t.applySettings(); err != nil {
		return err
	}
	key, err := t.conn.key()
	if err != nil {
		return err
	}
	var tokens signin.Tokens
	if dir := configDir(); dir != "" {
		tokens = logins(dir)
	}
	web, err := t.web(tokens, o)
	if err != nil {
		return err
	}
	address, expires, err := web.Link(cmd.Context(), key, path)
	if err != nil {
		return hint(fmt.Errorf("failed to get a sign-in link from %s: %w", web.Address(), err), "check that the API key is one of this agent's; the agent's log has the reason of a refusal")
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "Open this address once, until %s:\n", expires.UTC().Format(time.RFC3339))
	_, err = fmt.Fprintln(cmd.OutOrStdout(), address)
	return err
}
