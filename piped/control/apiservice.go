package control

import (
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/c785c783/piped/proto/pipecd/apiservice"
	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
)

// apiService serves APIService. Methods it does not have answer Unimplemented.
type apiService struct {
	apiservice.UnimplementedAPIServiceServer

	store   Store
	convert converter
	now     func() time.Time
	newID   func() string
}

// controlService is ControlService before its first method is served.
type controlService struct {
	controlv1.UnimplementedControlServiceServer
}

// maxPage bounds a page whatever limit the caller gives, 0 included: the
// cursor leads to the rest.
const maxPage = 500

func pageSize(limit int32) int {
	if limit == 0 || limit > maxPage {
		return maxPage
	}
	return int(limit)
}

// fit returns how many of the messages a response can hold, at least one of
// them: a page may be shorter than asked for, never larger than a client reads.
func fit[M proto.Message](list []M) int {
	total := 0
	for i, m := range list {
		total += proto.Size(m) + 8 // tag and length around it
		if i > 0 && total > maxResponse {
			return i
		}
	}
	return len(list)
}
