package fakecloud

import (
	"net/http"
	"strings"
)

func groupKey(subscription, group string) string {
	return strings.ToLower(subscription + "/" + group)
}

func (s *Server) group(subscription, name string) *Group {
	return s.state.Groups[groupKey(subscription, name)]
}

// generation counts how often a name was created.
func (s *Server) generation(kind, name string) int {
	key := kind + " " + strings.ToLower(name)
	s.state.Generations[key]++
	return s.state.Generations[key]
}

func (s *Server) getSubscription(c *call) reply {
	sub := s.state.Subscriptions[strings.ToLower(c.path.subscription)]
	return ok(map[string]any{
		"id": "/subscriptions/" + sub.ID, "subscriptionId": sub.ID, "displayName": sub.Name,
		"tenantId": Tenant, "state": "Enabled",
	})
}

func groupNotFound(name string) *Error {
	return notFound("ResourceGroupNotFound", "Resource group '%s' could not be found.", name)
}

func (s *Server) getGroup(c *call) reply {
	g := s.group(c.path.subscription, c.path.group)
	if g == nil {
		return refused(groupNotFound(c.path.group))
	}
	return ok(g.render())
}

func (s *Server) headGroup(c *call) reply {
	if s.group(c.path.subscription, c.path.group) == nil {
		return reply{status: http.StatusNotFound}
	}
	return reply{status: http.StatusNoContent}
}

func (s *Server) listGroups(c *call) reply {
	var items []any
	for _, key := range sortedKeys(s.state.Groups) {
		if g := s.state.Groups[key]; same(g.Subscription, c.path.subscription) {
			items = append(items, g.render())
		}
	}
	return s.list(c, items)
}

func (s *Server) putGroup(c *call) reply {
	var request struct {
		Location *string            `json:"location"`
		Tags     map[string]*string `json:"tags"`
	}
	if err := c.decode(&request); err != nil {
		return refused(err)
	}
	if empty(request.Location) {
		return refused(badRequest("LocationRequired", "The location property is required for this definition."))
	}
	if err := validTags(request.Tags, 512); err != nil {
		return refused(err)
	}
	if g := s.group(c.path.subscription, c.path.group); g != nil {
		if g.Location != normalLocation(*request.Location) {
			return refused(conflict("InvalidResourceGroupLocation", "Invalid resource group location '%s'. The Resource group already exists in location '%s'.", *request.Location, g.Location))
		}
		c.did(Updated, "")
		g.Tags = plainTags(request.Tags)
		return ok(g.render())
	}
	g := s.addGroup(c.path.subscription, c.path.group, *request.Location)
	g.Tags = plainTags(request.Tags)
	c.did(Created, "")
	return reply{status: http.StatusCreated, body: g.render()}
}

// deleteGroup deletes an empty group; Azure would also delete its resources.
func (s *Server) deleteGroup(c *call) reply {
	g := s.group(c.path.subscription, c.path.group)
	if g == nil {
		return refused(groupNotFound(c.path.group))
	}
	for id := range s.resources() {
		if within(id, g.ID()) {
			return refused(conflict("ResourceGroupDeletionBlocked", "The resource group '%s' is not empty, and this cloud deletes only empty ones.", g.Name))
		}
	}
	delete(s.state.Groups, groupKey(c.path.subscription, c.path.group))
	c.did(Deleted, "")
	return reply{status: http.StatusOK}
}

func (s *Server) addGroup(subscription, name, location string) *Group {
	g := &Group{Subscription: subscription, Name: name, Location: normalLocation(location)}
	s.state.Groups[groupKey(subscription, name)] = g
	s.changed()
	return g
}

func (g *Group) render() map[string]any {
	return map[string]any{
		"id": g.ID(), "name": g.Name, "type": "Microsoft.Resources/resourceGroups", "location": g.Location,
		"tags": orEmpty(g.Tags), "properties": map[string]any{"provisioningState": "Succeeded"},
	}
}

// resources returns the IDs and names of all resources in resource groups.
func (s *Server) resources() map[string]string {
	ids := map[string]string{}
	for _, a := range s.state.Accounts {
		ids[strings.ToLower(a.ID())] = accountKind
	}
	for _, v := range s.state.Vaults {
		if v.DeletedAt == nil {
			ids[strings.ToLower(v.ID())] = vaultKind
		}
	}
	return ids
}

// scopeExists rejects a scope of a role assignment or a lock that does not exist.
func (s *Server) scopeExists(c *call) *Error {
	scope := parsePath(c.path.scope)
	switch {
	case scope.subscription == "" && scope.provider == "":
		return nil
	case scope.provider == "":
		return nil // subscribed has checked the subscription and the group.
	}
	found := false
	switch scope.kind() {
	case "microsoft.storage/storageaccounts":
		a := s.accountNamed(scope.name(0), c.now)
		found = a != nil && same(a.ID(), scope.id())
	case "microsoft.keyvault/vaults", "microsoft.keyvault/vaults/keys":
		v := s.vaultNamed(scope.name(0), c.now)
		found = v != nil && within(scope.id(), v.ID()) && (len(scope.names) < 2 || v.liveKey(scope.name(1)) != nil)
	}
	if !found {
		return resourceNotFound(scope.provider+"/"+strings.Join(scope.types, "/"), strings.Join(scope.names, "/"), scope.group)
	}
	return nil
}
