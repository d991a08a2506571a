package pipectl

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
)

func newSession(t *tool) *cobra.Command {
	cmd := &cobra.Command{Use: "session", Short: "Manage the sessions of users who are signed in."}
	cmd.AddCommand(newSessionList(t), newSessionEnd(t))
	return asGroup(cmd)
}

func newSessionList(t *tool) *cobra.Command {
	req := &controlv1.ListSessionsRequest{}
	cmd := &cobra.Command{
		Use:   "list",
		Short: "Show sessions, newest first: all with the permission keys, else one's own.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return query(cmd, t, formatTable, func(ctx context.Context, c *client) (*controlv1.ListSessionsResponse, error) {
				resp, err := c.control.ListSessions(ctx, req)
				if err != nil {
					return nil, failed("failed to list sessions", err)
				}
				return resp, nil
			}, (*printer).sessions)
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&req.Own, "own", false, "Only show one's own sessions.")
	flags.StringVar(&req.Issuer, "issuer", "", "The configured name of the issuer. Empty means any.")
	flags.StringVar(&req.Subject, "subject", "", "The subject of the user or API key. Empty means any.")
	flags.BoolVar(&req.IncludeEnded, "include-ended", false, "Also show sessions that have ended or expired.")
	flags.Int32Var(&req.Limit, "limit", 30, "The most sessions to show.")
	flags.StringVar(&req.Cursor, "cursor", "", "The cursor from the end of the previous list.")
	return required(cmd)
}

func (p *printer) sessions(resp *controlv1.ListSessionsResponse) error {
	t := newTable(fixed("ID"), flexible("SUBJECT"), flexible("ISSUER"), fixed("STATE"), fixed("WITH"), fixed("FROM"), fixed("SIGNED IN"), fixed("LAST USED"), fixed("EXPIRES"))
	for _, s := range resp.GetSessions() {
		t.add(s.GetId(), s.GetSubject(), s.GetIssuer(), p.sessionState(s), s.GetClient(), s.GetRemote(),
			p.age(s.GetCreatedAtMs()), p.age(s.GetLastUsedAtMs()), instant(s.GetExpiresAtMs()))
	}
	return p.table(t, "No sessions.", resp.GetCursor())
}

func (p *printer) sessionState(s *controlv1.Session) cell {
	switch {
	case s.GetEndedAtMs() > 0:
		return cell{text: "ENDED", color: faint}
	case s.GetCurrent():
		return cell{text: "THIS ONE", color: green}
	case s.GetExpiresAtMs() <= p.now.UnixMilli():
		return cell{text: "EXPIRED", color: faint}
	}
	return cell{text: "OPEN", color: green}
}

// instant formats a time in unix milliseconds.
func instant(ms int64) string { return time.UnixMilli(ms).UTC().Format(time.RFC3339) }

func newSessionEnd(t *tool) *cobra.Command {
	req := &controlv1.EndSessionRequest{}
	cmd := &cobra.Command{
		Use:   "end",
		Short: "End a session: with the permission keys any, else one's own.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return callAndReport(cmd, t, "Successfully ended session id = %s", func(ctx context.Context, c *client) (string, error) {
				if _, err := c.control.EndSession(ctx, req); err != nil {
					return "", unknown(failed("failed to end the session", err), "'pipectl session list' shows the IDs")
				}
				return req.GetId(), nil
			})
		},
	}
	cmd.Flags().StringVar(&req.Id, "session-id", "", "The ID of the session.")
	return required(cmd, "session-id")
}

func newUser(t *tool) *cobra.Command {
	cmd := &cobra.Command{Use: "user", Short: "Disable and enable users."}
	cmd.AddCommand(newUserDisable(t), newUserEnable(t), newUserList(t))
	return asGroup(cmd)
}

func newUserDisable(t *tool) *cobra.Command {
	req := &controlv1.DisableUserRequest{}
	cmd := &cobra.Command{
		Use:   "disable",
		Short: "End the sessions of a user and prevent new ones.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return callAndReport(cmd, t, "Successfully disabled user %s", func(ctx context.Context, c *client) (string, error) {
				if _, err := c.control.DisableUser(ctx, req); err != nil {
					return "", failed("failed to disable the user", err)
				}
				return req.GetSubject(), nil
			})
		},
	}
	return aboutUser(cmd, &req.Issuer, &req.Subject)
}

func newUserEnable(t *tool) *cobra.Command {
	req := &controlv1.EnableUserRequest{}
	cmd := &cobra.Command{
		Use:   "enable",
		Short: "Let a disabled user sign in again.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return callAndReport(cmd, t, "Successfully enabled user %s", func(ctx context.Context, c *client) (string, error) {
				if _, err := c.control.EnableUser(ctx, req); err != nil {
					return "", failed("failed to enable the user", err)
				}
				return req.GetSubject(), nil
			})
		},
	}
	return aboutUser(cmd, &req.Issuer, &req.Subject)
}

// aboutUser adds the flags that name a user.
func aboutUser(cmd *cobra.Command, issuer, subject *string) *cobra.Command {
	cmd.Flags().StringVar(issuer, "issuer", "", "The configured name of the user's issuer.")
	cmd.Flags().StringVar(subject, "subject", "", "The subject of the user, as 'pipectl session list' and the audit log show it.")
	return required(cmd, "issuer", "subject")
}

func newUserList(t *tool) *cobra.Command {
	return required(&cobra.Command{
		Use:   "list",
		Short: "Show the users who cannot sign in.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return query(cmd, t, formatTable, func(ctx context.Context, c *client) (*controlv1.ListDisabledUsersResponse, error) {
				resp, err := c.control.ListDisabledUsers(ctx, &controlv1.ListDisabledUsersRequest{})
				if err != nil {
					return nil, failed("failed to list the disabled users", err)
				}
				return resp, nil
			}, (*printer).disabledUsers)
		},
	})
}

func (p *printer) disabledUsers(resp *controlv1.ListDisabledUsersResponse) error {
	t := newTable(flexible("ISSUER"), flexible("SUBJECT"), fixed("STATE"), flexible("BY"), fixed("SINCE"))
	for _, u := range resp.GetUsers() {
		t.add(u.GetIssuer(), u.GetSubject(), colored("DISABLED"), u.GetDisabledBy(), p.age(u.GetDisabledAtMs()))
	}
	return p.table(t, "No user is disabled.", "")
}
