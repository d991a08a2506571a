package pipectl

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
)

func newWhoami(t *tool) *cobra.Command {
	return required(&cobra.Command{
		Use:   "whoami",
		Short: "Show who acts with these credentials, and what they permit.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return query(cmd, t, formatTable, getCaller, (*printer).caller)
		},
	})
}

func getCaller(ctx context.Context, c *client) (*controlv1.GetCallerResponse, error) {
	resp, err := c.control.GetCaller(ctx, &controlv1.GetCallerRequest{})
	if err != nil {
		return nil, failed("failed to get the caller", err)
	}
	return resp, nil
}

// caller writes who the caller is and what the caller may do where.
func (p *printer) caller(m *controlv1.GetCallerResponse) error {
	kinds := map[controlv1.CallerKind]string{
		controlv1.CallerKind_CALLER_KIND_API_KEY: "API key", controlv1.CallerKind_CALLER_KIND_USER: "user",
		controlv1.CallerKind_CALLER_KIND_API_KEY_SESSION: "API key, signed in",
	}
	limit := ""
	if m.GetKind() != controlv1.CallerKind_CALLER_KIND_USER {
		limit = limitText(m.GetApplications())
	}
	id := field{"Session", m.GetId()}
	if m.GetKind() == controlv1.CallerKind_CALLER_KIND_API_KEY {
		id.name = "Key ID"
	}
	expires := ""
	if m.GetExpiresAtMs() > 0 {
		expires = instant(m.GetExpiresAtMs())
	}
	everywhere := permissionsOf(m, controlv1.PermissionExtent_PERMISSION_EXTENT_EVERYWHERE)
	some := permissionsOf(m, controlv1.PermissionExtent_PERMISSION_EXTENT_SOME)
	none := ""
	if everywhere == "" && some == "" {
		none = "nothing: no role grants a permission"
	}
	return p.fields(field{"Subject", m.GetSubject()}, field{"Kind", kinds[m.GetKind()]}, field{"Name", m.GetName()}, field{"Issuer", m.GetIssuer()},
		field{"Groups", strings.Join(m.GetGroups(), ", ")}, field{"Roles", strings.Join(m.GetRoles(), ", ")}, field{"Limited to", limit},
		id, field{"Expires", expires},
		field{"Permits in all", everywhere}, field{"Permits in some", some}, field{"Permits", none})
}

// permissionsOf lists the permissions with an extent.
func permissionsOf(m *controlv1.GetCallerResponse, extent controlv1.PermissionExtent) string {
	var names []string
	for _, p := range m.GetPermissions() {
		if p.GetExtent() == extent {
			names = append(names, p.GetPermission())
		}
	}
	return strings.Join(names, ", ")
}

func newAccess(t *tool) *cobra.Command {
	cmd := &cobra.Command{Use: "access", Short: "Examine who may do what."}
	cmd.AddCommand(newAccessCheck(t))
	return asGroup(cmd)
}

func newAccessCheck(t *tool) *cobra.Command {
	req := &controlv1.CheckAccessRequest{}
	cmd := &cobra.Command{
		Use:   "check SUBJECT PERMISSION [APPLICATION]",
		Short: "Show whether a user or API key has a permission in an application, and why.",
		Long: `Show whether a user or API key has a permission in an application, and which role
grants it, or why none does. The exit status is 1 if the permission is denied.

SUBJECT is the name of an API key, or the subject of a user. The groups of a user are
those of the newest sign-in, unless --group names others. APPLICATION is an ID or a
name; the permissions about the agent (encrypt, keys, administer) need none.`,
		Example: `  pipectl access check ana@example.com sync web`,
		Args:    checkArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			req.Subject, req.Permission = args[0], args[1]
			application := ""
			if len(args) > 2 {
				application = args[2]
			}
			return checkAccess(cmd, t, req, application)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&req.Issuer, "issuer", "", "The configured name of the user's issuer. Empty means any.")
	flags.StringSliceVar(&req.Groups, "group", nil, "A group of the user, as the issuer names it. Can be given several times.")
	return cmd
}

func checkArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 2 || len(args) == 3 {
		return nil
	}
	return hint(fmt.Errorf("%q takes a subject, a permission and an application, and %d of them were given", cmd.CommandPath(), len(args)), "such as: pipectl access check ana@example.com sync web")
}

// checkAccess writes the answer and returns an error if it is no.
func checkAccess(cmd *cobra.Command, t *tool, req *controlv1.CheckAccessRequest, application string) error {
	p, err := t.printer(cmd, formatTable)
	if err != nil {
		return err
	}
	resp, err := ask(cmd, t, func(ctx context.Context, c *client) (*controlv1.CheckAccessResponse, error) {
		if req.ApplicationId, err = idOf(ctx, c, application, referenceFlags()["app-id"]); err != nil {
			return nil, err
		}
		resp, err := c.control.CheckAccess(ctx, req)
		if err != nil {
			return nil, unknownApplication(failed("failed to check the access", err))
		}
		return resp, nil
	})
	if err != nil {
		return err
	}
	if err := p.print(resp, func(p *printer) error { return p.decision(resp) }); err != nil || resp.GetAllowed() {
		return err
	}
	return errors.New("the permission is denied")
}

func (p *printer) decision(m *controlv1.CheckAccessResponse) error {
	answer := cell{text: "denied", color: red}
	if m.GetAllowed() {
		answer = cell{text: "allowed", color: green}
	}
	return p.fields(field{"Access", answer}, field{"Reason", m.GetReason()}, field{"Role", m.GetRole()}, field{"Groups", strings.Join(m.GetGroups(), ", ")})
}
