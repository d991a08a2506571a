package replace

import (
	"errors"
	"fmt"
	"regexp"
)

// byRegex replaces the first group of every match.
func byRegex(content []byte, expression, value string) ([]byte, error) {
	re, err := regexp.Compile(expression)
	if err != nil {
		return nil, fmt.Errorf("regex %s: %w", expression, err)
	}
	if re.NumSubexp() == 0 {
		return nil, fmt.Errorf("regex %s has no group; put the part to replace into one, as in image:(.*)", expression)
	}
	var splices []splice
	for _, match := range re.FindAllSubmatchIndex(content, -1) {
		if match[2] >= 0 {
			splices = append(splices, splice{match[2], match[3], value})
		}
	}
	if len(splices) == 0 {
		return nil, errors.New("regex " + expression + " matches nothing in the file")
	}
	return spliced(content, splices...), nil
}
