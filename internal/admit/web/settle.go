package web

import "net/http"

// Settle carries back to the outer request what the handler's parsing left on the inner one, a copy of it with another
// context. Without that the server would not find the temporary files of a multipart form, which it removes by its own
// request, and a middleware that logs the matched pattern would see none.
func Settle(outer, inner *http.Request) {
	if inner == outer {
		return
	}
	if outer.Form == nil {
		outer.Form = inner.Form
	}
	if outer.PostForm == nil {
		outer.PostForm = inner.PostForm
	}
	if outer.MultipartForm == nil {
		outer.MultipartForm = inner.MultipartForm
	}
	if outer.Pattern == "" {
		outer.Pattern = inner.Pattern
	}
}
