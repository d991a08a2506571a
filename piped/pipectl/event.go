package pipectl

import (
	"context"
	"fmt"
	"regexp"
	"strings"

	"github.com/spf13/cobra"

	"github.com/c785c783/piped/proto/pipecd/apiservice"
	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

func newEvent(t *tool) *cobra.Command {
	cmd := &cobra.Command{Use: "event", Short: "Manage events: what was built elsewhere, to be written into Git."}
	cmd.AddCommand(newEventRegister(t), newEventList(t))
	return asGroup(cmd)
}

func newEventRegister(t *tool) *cobra.Command {
	req := &apiservice.RegisterEventRequest{}
	cmd := &cobra.Command{
		Use:   "register",
		Short: "Register an event, and print its ID.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkContexts(req.Contexts); err != nil {
				return err
			}
			log, err := t.logs.logger(cmd)
			if err != nil {
				return err
			}
			resp, err := ask(cmd, t, func(ctx context.Context, c *client) (*apiservice.RegisterEventResponse, error) {
				return c.RegisterEvent(ctx, req)
			})
			if err != nil {
				return failed("failed to register event", err)
			}
			log.info("Successfully registered event", "id", resp.GetEventId())
			_, err = fmt.Fprintln(cmd.OutOrStdout(), resp.GetEventId())
			return err
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&req.Name, "name", "", "The name of the event.")
	flags.StringVar(&req.Data, "data", "", "The value of the event, such as a tag.")
	flags.StringToStringVar(&req.Labels, "labels", nil, "The labels of the event, as key=value,key2=value2.")
	flags.StringToStringVar(&req.Contexts, "contexts", nil, "Values to write as trailers of the commit, as key=value,key2=value2.")
	flags.StringVar(&req.CommitHash, "commit-hash", "", "The commit elsewhere that caused the event.")
	flags.StringVar(&req.CommitTitle, "commit-title", "", "The title of that commit.")
	flags.StringVar(&req.CommitMessage, "commit-message", "", "The message of that commit.")
	flags.StringVar(&req.CommitUrl, "commit-url", "", "The URL of that commit.")
	flags.StringVar(&req.CommitAuthor, "commit-author", "", "The author of that commit.")
	flags.Int64Var(&req.CommitTimestamp, "commit-timestamp", 0, "When that commit was made, in unix seconds.")
	return required(cmd, "name", "data")
}

// checkContexts rejects keys that cannot be trailers of a commit.
func checkContexts(contexts map[string]string) error {
	valid := regexp.MustCompile(`^[a-zA-Z0-9]+(-[a-zA-Z0-9]+)*$`)
	for key := range contexts {
		if !valid.MatchString(key) {
			return hint(fmt.Errorf("invalid format context key: %q", key), "keys are letters and digits, in groups joined by a dash, such as Source-Commit")
		}
	}
	return nil
}

const eventStatusPrefix = "EVENT_"

func newEventList(t *tool) *cobra.Command {
	req := &controlv1.ListEventsRequest{}
	var labels, statuses []string
	cmd := &cobra.Command{
		Use:   "list",
		Short: "Show registered events and what became of them, newest first.",
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if req.Labels, err = labelsFromPairs(labels); err != nil {
				return err
			}
			for _, s := range statuses {
				number, ok := modelv1.EventStatus_value[eventStatusPrefix+strings.TrimPrefix(strings.ToUpper(s), eventStatusPrefix)]
				if !ok {
					return hint(fmt.Errorf("invalid event status: %s", s), "the statuses are: %s", strings.Join(namesOf(modelv1.EventStatus_name), ", "))
				}
				req.Statuses = append(req.Statuses, modelv1.EventStatus(number))
			}
			return query(cmd, t, formatTable, func(ctx context.Context, c *client) (*controlv1.ListEventsResponse, error) {
				resp, err := c.control.ListEvents(ctx, req)
				if err != nil {
					return nil, failed("failed to list events", err)
				}
				return resp, nil
			}, func(p *printer, resp *controlv1.ListEventsResponse) error { return p.events(resp, int(req.Limit)) })
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&req.Name, "name", "", "The name of the events.")
	flags.StringSliceVar(&labels, "label", nil, "A label that must match, as KEY:VALUE. Can be given several times.")
	flags.StringSliceVar(&statuses, "status", nil, fmt.Sprintf("The statuses to show. (%s)", strings.Join(namesOf(modelv1.EventStatus_name), "|")))
	flags.Int32Var(&req.Limit, "limit", 30, "The most events to show.")
	flags.StringVar(&req.Cursor, "cursor", "", "The cursor from the end of the previous list.")
	return required(cmd)
}

// events returns the table of events; limit is the requested page size.
func (p *printer) events(resp *controlv1.ListEventsResponse, limit int) error {
	t := newTable(fixed("ID"), flexible("NAME"), flexible("DATA"), flexible("LABELS"), fixed("STATUS"), fixed("COMMIT"), fixed("CREATED"), flexible("REASON"))
	for _, e := range resp.GetEvents() {
		t.add(e.GetId(), e.GetName(), e.GetData(), pairs(e.GetLabels()), colored(word(e.GetStatus(), eventStatusPrefix)),
			shortHash(e.GetPushedCommit()), p.ageSeconds(e.GetCreatedAt()), eventReason(e))
	}
	return p.table(t, "No events.", ifMore(t, limit, resp))
}

// eventReason is the status description of an event, with its pull request unless the
// description contains it.
func eventReason(e *modelv1.Event) string {
	reason, page := e.GetStatusDescription(), e.GetPullRequestUrl()
	if strings.Contains(reason, page) {
		return reason
	}
	return strings.TrimSpace(reason + " " + page)
}
