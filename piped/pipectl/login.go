package pipectl

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"runtime"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/c785c783/piped/piped/pipectl/signin"
	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
)

// loginOptions are the flags of login.
type loginOptions struct {
	web, issuer       string
	device, noBrowser bool
	timeout           time.Duration
}

func newLogin(t *tool) *cobra.Command {
	var o loginOptions
	cmd := &cobra.Command{
		Use:   "login",
		Short: "Sign in at the agent, with a browser or on another device.",
		Long: `Sign in at the agent. A browser on this computer shows the agent's sign-in page and
returns to this command. With --device the browser can be on another device.

The token of the session is stored for the agent's address in a file that only its owner
can read, below ~/.config/pipectl/sessions ($XDG_CONFIG_HOME counts). Later commands use
it unless an API key is given by flag, variable or configuration file.`,
		RunE: func(cmd *cobra.Command, _ []string) error { return login(cmd, t, o) },
	}
	flags := cmd.Flags()
	flags.StringVar(&o.web, "web-address", "", "The address of the agent's web server: its access.externalURL, such as https://piped.example.com. Empty means that of the last sign-in. [PIPECTL_WEB_ADDRESS]")
	flags.BoolVar(&o.device, "device", false, "Sign in on another device, with a code.")
	flags.StringVar(&o.issuer, "issuer", "", "With --device: the configured name of the issuer. Needed if the agent has several.")
	flags.BoolVar(&o.noBrowser, "no-browser", false, "Only print the address of the sign-in page, to be opened in a browser on this computer.")
	flags.DurationVar(&o.timeout, "timeout", 10*time.Minute, "How long to wait for the sign-in.")
	return required(cmd)
}

func login(cmd *cobra.Command, t *tool, o loginOptions) error {
	tokens, err := t.logins()
	if err != nil {
		return err
	}
	web, err := t.web(tokens, o)
	if err != nil {
		return err
	}
	granted, err := signInWith(cmd, web, o)
	if err != nil {
		return hint(fmt.Errorf("failed to sign in at %s: %w", web.Address(), err), "begin again with 'pipectl login'; the agent's log has the reason of a refusal")
	}
	if err := t.accepts(cmd.Context(), granted.Token); err != nil {
		return hint(fmt.Errorf("signed in at %s, but %s does not accept it: %w", web.Address(), t.conn.address, err), "check that --address and --web-address are those of the same agent")
	}
	saved := signin.Saved{Token: granted.Token, Subject: granted.Subject, Issuer: granted.Issuer, ExpiresAt: granted.ExpiresAt, WebAddress: web.Address()}
	if err := tokens.Save(t.conn.address, saved); err != nil {
		return hint(fmt.Errorf("store the sign-in: %w", err), "make %s writable", tokens.Dir)
	}
	_, err = fmt.Fprintf(cmd.ErrOrStderr(), "Signed in at %s as %s until %s\n", t.conn.address, clean(granted.Subject), granted.ExpiresAt.UTC().Format(time.RFC3339))
	return err
}

// logins returns the stored sign-ins, for an address that is known.
func (t *tool) logins() (signin.Tokens, error) {
	if err := t.applySettings(); err != nil {
		return signin.Tokens{}, err
	}
	if err := t.conn.checkAddress(); err != nil {
		return signin.Tokens{}, err
	}
	dir := configDir()
	if dir == "" {
		return signin.Tokens{}, hint(errors.New("there is no home directory for the token of the sign-in"), "set HOME or XDG_CONFIG_HOME")
	}
	return logins(dir), nil
}

// web returns the web server to sign in at: a given one, or that of the last sign-in.
func (t *tool) web(tokens signin.Tokens, o loginOptions) (*signin.Client, error) {
	const way = "give the agent's access.externalURL with --web-address or PIPECTL_WEB_ADDRESS, such as https://piped.example.com"
	address := cmp.Or(o.web, os.Getenv(variable("web-address")))
	if address == "" {
		last, err := tokens.Load(t.conn.address)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, hint(fmt.Errorf("read the last sign-in at %s: %w", t.conn.address, err), way)
		}
		if address = last.WebAddress; address == "" {
			return nil, hint(errors.New("the web address must be set"), way)
		}
	}
	roots, err := t.conn.webTLS()
	if err != nil {
		return nil, err
	}
	web, err := signin.New(address, roots)
	if err != nil {
		return nil, hint(err, way)
	}
	return web, nil
}

// webTLS accepts certificates that the system trusts and, if one is configured, those that are
// signed by the agent's.
func (c *connection) webTLS() (*tls.Config, error) {
	cfg := &tls.Config{MinVersion: tls.VersionTLS12}
	if c.certFile == "" {
		return cfg, nil
	}
	pem, err := os.ReadFile(c.certFile)
	if err == nil {
		if cfg.RootCAs, err = x509.SystemCertPool(); err == nil && !cfg.RootCAs.AppendCertsFromPEM(pem) {
			err = errors.New("no certificate in it")
		}
	}
	if err != nil {
		return nil, hint(fmt.Errorf("read the certificate %s: %w", c.certFile, err), "check --cert-file or PIPECTL_CERT_FILE: it holds PEM certificates")
	}
	return cfg, nil
}

// signInWith shows the user what to do and waits for the sign-in.
func signInWith(cmd *cobra.Command, web *signin.Client, o loginOptions) (signin.Grant, error) {
	out := cmd.ErrOrStderr()
	if o.device {
		return web.Device(cmd.Context(), o.issuer, o.timeout, func(d signin.Device) {
			fmt.Fprintf(out, "Open this page on any device:\n\n  %s\n\nand enter the code: %s\n", cmp.Or(d.Complete, d.URI), d.UserCode)
		})
	}
	return web.Browser(cmd.Context(), o.timeout, func(page string) {
		fmt.Fprintf(out, "Sign in on this page in a browser on this computer:\n\n  %s\n\n", page)
		if !o.noBrowser {
			openBrowser(out, page)
		}
	})
}

// openBrowser asks the desktop to open a page. The user can also open it by hand.
func openBrowser(out io.Writer, page string) {
	name, args := "xdg-open", []string{page}
	switch runtime.GOOS {
	case "darwin":
		name = "open"
	case "windows":
		name, args = "rundll32", []string{"url.dll,FileProtocolHandler", page}
	}
	browser := exec.Command(name, args...)
	if err := browser.Start(); err != nil {
		fmt.Fprintf(out, "No browser could be opened (%v): open the page by hand, or use --device.\n", err)
		return
	}
	go func() { _ = browser.Wait() }() // it may run longer than this program
}

// accepts returns an error unless the agent accepts a token.
func (t *tool) accepts(ctx context.Context, token string) error {
	c, err := t.withSession(ctx, token)
	if err != nil {
		return err
	}
	defer c.close()
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	_, err = c.control.GetCaller(ctx, &controlv1.GetCallerRequest{})
	return err
}

// withSession connects with the token of a session, whatever key is configured. The caller
// closes the client.
func (t *tool) withSession(ctx context.Context, token string) (*client, error) {
	conn := t.conn
	conn.session = token
	return conn.dial(ctx)
}

func newLogout(t *tool) *cobra.Command {
	return required(&cobra.Command{
		Use:   "logout",
		Short: "End the session of 'pipectl login' at the agent, and remove its token.",
		RunE:  func(cmd *cobra.Command, _ []string) error { return logout(cmd, t) },
	})
}

// logout removes the token also if the agent does not answer.
func logout(cmd *cobra.Command, t *tool) error {
	tokens, err := t.logins()
	if err != nil {
		return err
	}
	saved, err := tokens.Load(t.conn.address)
	if errors.Is(err, fs.ErrNotExist) {
		_, err := fmt.Fprintf(cmd.ErrOrStderr(), "Not signed in at %s\n", t.conn.address)
		return err
	}
	if removed := tokens.Remove(t.conn.address); removed != nil {
		return hint(fmt.Errorf("remove the token of the sign-in: %w", removed), "remove %s by hand", tokens.Path(t.conn.address))
	}
	if err != nil {
		return hint(fmt.Errorf("the token of the sign-in was removed, but not sent to the agent: %w", err), "end the session with 'pipectl session end'; it may be known to others")
	}
	if err := t.endSession(cmd.Context(), saved.Token); err != nil {
		return hint(fmt.Errorf("the token of the sign-in was removed, but the session is still open: %w", err), "end it with 'pipectl session end'; it expires at %s", saved.ExpiresAt.UTC().Format(time.RFC3339))
	}
	_, err = fmt.Fprintf(cmd.ErrOrStderr(), "Signed out at %s\n", t.conn.address)
	return err
}

// endSession ends the session of a token; one that has ended is no error.
func (t *tool) endSession(ctx context.Context, token string) error {
	c, err := t.withSession(ctx, token)
	if err != nil {
		return err
	}
	defer c.close()
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if _, err = c.control.EndSession(ctx, &controlv1.EndSessionRequest{}); status.Code(err) == codes.Unauthenticated {
		return nil
	}
	return err
}
