package control

import (
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/proto/pipecd/apiservice"
)

// apiService implements APIService. Methods that it lacks return Unimplemented.
type apiService struct {
	apiservice.UnimplementedAPIServiceServer

	store   Store
	agent   Agent
	convert converter
	now     func() time.Time
	newID   func() string

	// Shared by concurrent identical requests.
	applications reads[*apiservice.ListApplicationsResponse]
	deployments  reads[*apiservice.ListDeploymentsResponse]
}

// maxPage limits the page size, whatever limit the caller sets, including 0 (none). The
// cursor leads to the rest.
const maxPage = 500

// page lists and converts the rows of a page of APIService.
func page[T any, M proto.Message](asked int32, list func(limit int) ([]T, string, error), convert func(T) M) ([]M, string, error) {
	limit := int(asked)
	if limit == 0 || limit > maxPage {
		limit = maxPage
	}
	return pageOf(limit, list, convert)
}

// pageOf lists and converts rows. A page can be shorter than requested, because it must not
// exceed the size that a client accepts. In that case it lists the rows again with a limit
// that fits, so that the cursor is correct.
func pageOf[T any, M proto.Message](limit int, list func(limit int) ([]T, string, error), convert func(T) M) ([]M, string, error) {
	for {
		rows, cursor, err := list(limit)
		if err != nil {
			return nil, "", err
		}
		var messages []M
		for _, row := range rows {
			messages = append(messages, convert(row))
		}
		n := fit(messages)
		if n == len(messages) {
			return messages, cursor, nil
		}
		limit = n
	}
}

// perField is an upper bound of the tag and length that precede a message.
const perField = 16

// fit returns how many of the messages fit into a response, at least one.
func fit[M proto.Message](list []M) int {
	total := 0
	for i, m := range list {
		total += proto.Size(m) + perField
		if i > 0 && total > maxResponse {
			return i
		}
	}
	return len(list)
}

// holdsAll returns an error if a list without pages exceeds the size of a response. instead is
// the hint in the error on how to request less.
func holdsAll[M proto.Message](list []M, what, instead string) error {
	if fit(list) == len(list) {
		return nil
	}
	return deploy.Errorf(deploy.Illegal, "there are %d %s, more than a response holds: %s", len(list), what, instead)
}
